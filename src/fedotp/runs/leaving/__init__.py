"""Removal of clients from a run, and its certificate."""

from fedotp.runs.leaving._forget import check_certificate as check_certificate
from fedotp.runs.leaving._forget import forget as forget
