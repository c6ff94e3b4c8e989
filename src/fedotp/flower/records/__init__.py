"""Records that show later changes: the security log of a server or a site, and the transcripts of a run."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face
from fedotp.flower.records._chain import Line as Line
from fedotp.flower.records._chain import read_chain as read_chain
from fedotp.flower.records._security_log import check_logs as check_logs
from fedotp.flower.records._security_log import security_log as security_log

if TYPE_CHECKING:  # they import torch, which `fedotp log check` does not need
    from fedotp.flower.records._transcript import SiteTranscript as SiteTranscript
    from fedotp.flower.records._transcript import Statement as Statement
    from fedotp.flower.records._transcript import Transcript as Transcript

__getattr__, __dir__ = lazy_face(__name__)
