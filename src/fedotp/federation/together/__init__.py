"""Parallel runs of several federations as one batched computation."""

from fedotp.federation.together._together import Together as Together
