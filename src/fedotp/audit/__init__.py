"""Privacy audits: lower bounds on epsilon from canaries, and membership inference."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.audit._audit import Audit as Audit
    from fedotp.audit._audit import audit as audit
    from fedotp.audit._membership import Estimate as Estimate
    from fedotp.audit._probe import Probe as Probe
    from fedotp.audit._probe import probe_run as probe_run

__getattr__, __dir__ = lazy_face(__name__)
