"""Clients that leave: a run without them, its certificate, and the value of each client."""

from fedotp.runs.leaving._forget import check_certificate as check_certificate
from fedotp.runs.leaving._forget import forget as forget
from fedotp.runs.leaving._value import measure_plan as measure_plan
from fedotp.runs.leaving._value import plan_value as plan_value
