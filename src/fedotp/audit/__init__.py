"""What an attacker learns at least: lower bounds on epsilon, and whether images can be told to be members.

Each part is imported when it is first used.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.audit._audit import Audit, audit, audit_federation
    from fedotp.audit._bound import Bound, epsilon_from_below
    from fedotp.audit._membership import Allowed, Estimate, Separation, separate
    from fedotp.audit._probe import Attack, Probe, probe_bundle, probe_bundle_of_run, probe_federation, probe_run

__all__ = [
    "Allowed",
    "Attack",
    "Audit",
    "Bound",
    "Estimate",
    "Probe",
    "Separation",
    "audit",
    "audit_federation",
    "epsilon_from_below",
    "probe_bundle",
    "probe_bundle_of_run",
    "probe_federation",
    "probe_run",
    "separate",
]

__getattr__, __dir__ = lazy_face(__name__, __all__, ["_bound", "_membership", "_probe", "_audit"])
