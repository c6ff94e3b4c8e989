"""Several federations at the same time, as one batched computation."""

from fedotp.federation.together._together import Together as Together
