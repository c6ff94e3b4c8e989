"""Registry of methods: fedotp's own, those of imported files, and those of installed packages."""

from importlib.metadata import EntryPoint

from fedotp._imports import bring, import_named, offered, origin, source_of
from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.methods._dpfpl import DPFPL
from fedotp.methods._fedamp import PromptFLAmp
from fedotp.methods._fedclip import FedCLIP
from fedotp.methods._fedmgp import FedMGP
from fedotp.methods._fedotp import FedOTP
from fedotp.methods._fedpgp import FedPGP
from fedotp.methods._fedpha import FedPHA
from fedotp.methods._fedtpg import FedTPG
from fedotp.methods._method import Method
from fedotp.methods._pfedmoap import PFedMoAP
from fedotp.methods._pfedprompt import PFedPrompt
from fedotp.methods._promptfl import CoOp, PromptFL, PromptFLFineTuned, PromptFLPer, PromptFLProx, ZeroShot
from fedotp.methods._promptfolio import PromptFolio
from fedotp.methods._ridge import FedCOF, PersonalRidge, Ridge

GROUP = "fedotp.methods"
"""Group of entry points of methods in installed packages: `name = "package.module:Class"`."""

_brought: dict[type[Method], EntryPoint] = {}


class Methods(dict[str, type[Method]]):
    """Methods by name; assignments are checked and cannot replace fedotp's own."""

    def __setitem__(self, name: str, method: type[Method]) -> None:
        if not (isinstance(method, type) and issubclass(method, Method)):
            raise FedotpError(f"METHODS[{name!r}] must be a subclass of Method, got {one_line(repr(method), 80)}")
        if getattr(method, "name", None) != name:
            raise FedotpError(f"METHODS[{name!r}]: its name must be {name!r}, got {getattr(method, 'name', None)!r}")
        if _is_ours(self.get(name)):
            raise FedotpError(f"fedotp already has a method {name}; rename {method.__qualname__}")
        super().__setitem__(name, method)


METHODS = Methods(
    (method.name, method)
    for method in (
        FedOTP,
        ZeroShot,
        CoOp,
        PromptFL,
        PromptFLFineTuned,
        PromptFLProx,
        PromptFLPer,
        PromptFLAmp,
        PFedPrompt,
        FedPHA,
        FedMGP,
        FedCLIP,
        PFedMoAP,
        FedTPG,
        PromptFolio,
        FedPGP,
        DPFPL,
        Ridge,
        FedCOF,
        PersonalRidge,
    )
)
"""Methods by their names in configurations; those of installed packages are added on first use."""


def find_method(name: str) -> type[Method] | None:
    """Return the method of this name, imported if necessary; None if there is none."""
    import_named()
    if name not in METHODS and (brought := bring(GROUP, name, "method")):
        METHODS[name], entry = brought
        _brought[METHODS[name]] = entry
    return METHODS.get(name)


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, including those of installed packages, without importing these."""
    import_named()
    return tuple(dict.fromkeys([*METHODS, *offered(GROUP)]))


def origin_of(method: type[Method]) -> dict[str, str]:
    """Return the origin of an external method for records: package, module, file and its SHA-256."""
    if _is_ours(method):
        return {}
    return origin(_brought.get(method)) | source_of(method.__module__)


def _is_ours(method: type[Method] | None) -> bool:
    return method is not None and method.__module__.startswith("fedotp.")
