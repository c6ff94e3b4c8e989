"""What a federation owes to those who leave, or want to know what they gave: forgetting, and the value of each."""

from fedotp.runs.leaving._certificate import check_certificate as check_certificate
from fedotp.runs.leaving._certificate import digests_of as digests_of
from fedotp.runs.leaving._certificate import read_certificate as read_certificate
from fedotp.runs.leaving._contribution import Plan as Plan
from fedotp.runs.leaving._contribution import measure_plan as measure_plan
from fedotp.runs.leaving._contribution import plan_value as plan_value
from fedotp.runs.leaving._contribution import run_plan as run_plan
from fedotp.runs.leaving._forget import forget as forget
