"""What a federation owes to those who leave, or want to know what they gave: forgetting, and the value of each."""

from fedotp.runs.leaving._certificate import check_certificate, read_certificate
from fedotp.runs.leaving._digests import digests_of
from fedotp.runs.leaving._forget import forget
from fedotp.runs.leaving._value import Plan, measure_plan, plan_value, run_plan

__all__ = [
    "Plan",
    "check_certificate",
    "digests_of",
    "forget",
    "measure_plan",
    "plan_value",
    "read_certificate",
    "run_plan",
]
