"""Records that show later changes: the security log of a server or a site, and the transcripts of a run."""

from fedotp.flower.records._chain import Chain as Chain
from fedotp.flower.records._chain import Line as Line
from fedotp.flower.records._chain import read_chain as read_chain
from fedotp.flower.records._security_log import check_logs as check_logs
from fedotp.flower.records._security_log import security_log as security_log
