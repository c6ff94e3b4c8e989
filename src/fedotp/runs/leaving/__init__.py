"""What a federation owes to those who leave, or want to know what they gave: forgetting, and the value of each."""

from fedotp.runs.leaving._certificate import check_certificate, digests_of, read_certificate
from fedotp.runs.leaving._contribution import Plan, measure_plan, plan_value, run_plan
from fedotp.runs.leaving._forget import forget

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
