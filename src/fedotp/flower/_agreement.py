"""The agreement of server and sites. Every message of the server contains it, for sites that restart or join late."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property

from flwr.app import ConfigRecord

from fedotp._text import one_line
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.flower.secure import Terms

PROTOCOL = 6
_KEY = "agreement"
_LONGEST = 32 << 20  # characters of an agreement
_MOST_CLASSES = 50_000  # twice ImageNet's
_LONGEST_NAME, _LONGEST_TEMPLATE = 500, 1000  # the text encoder accepts about 70 tokens


class DisagreementError(FedotpError):
    """An error whose message a site sends to the server; others may name files of the site, and so patients."""


@dataclass(frozen=True)
class Agreement:
    """The description of a federation that all its members share.

    Attributes:
        run: unique name of the run.
        config: the configuration, without the sites' paths.
        classes: names of the classes, in order; empty until the server knows them.
        template: caption template of zero-shot CLIP.
        backbone: digest of the frozen backbone.
        secure: terms of secure sums; None: the server receives every update in the clear.
    """

    run: str
    config: Config
    classes: tuple[str, ...]
    template: str
    backbone: str
    secure: Terms | None = None

    @cached_property
    def text(self) -> str:
        """The agreement as JSON."""
        return json.dumps(
            {
                "protocol": PROTOCOL,
                "run": self.run,
                "config": self.config.to_dict(),
                "classes": list(self.classes),
                "template": self.template,
                "backbone": self.backbone,
                "secure": None if self.secure is None else asdict(self.secure),
            },
            sort_keys=True,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of `text`."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def put(self, record: ConfigRecord) -> None:
        """Write the agreement into a message."""
        record[_KEY] = self.text

    @classmethod
    def of(cls, record: ConfigRecord) -> "Agreement":
        """Read the agreement from a message."""
        return cls.read(record.get(_KEY))

    @classmethod
    def read(cls, text: object) -> "Agreement":
        """Read an agreement from its JSON."""
        try:
            if not isinstance(text, str):
                raise TypeError
            if len(text) > _LONGEST:
                raise DisagreementError(f"the agreement must have at most {_LONGEST} characters, got {len(text)}")
            values = json.loads(text)
            protocol = values["protocol"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise DisagreementError("the message contains no agreement: the sender is not a fedotp server") from None
        if protocol != PROTOCOL:
            raise DisagreementError(
                f"the server uses protocol {one_line(protocol, 60)}, this site {PROTOCOL}: "
                "install the same version of fedotp on both"
            )
        try:
            agreement = cls(
                run=str(values["run"]),
                config=Config.from_dict(_without_none(values["config"]), "the server's configuration"),
                classes=_class_names(values["classes"]),
                template=str(values["template"]),
                backbone=str(values["backbone"]),
                secure=None if values["secure"] is None else Terms(**values["secure"]),
            )
        except FedotpError as error:
            raise DisagreementError(one_line(error)) from error
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise DisagreementError(f"cannot parse the server's agreement ({one_line(repr(error))})") from error
        if (length := len(agreement.template)) > _LONGEST_TEMPLATE:
            raise DisagreementError(f"the template must have at most {_LONGEST_TEMPLATE} characters, got {length}")
        if not re.fullmatch("[0-9a-f]{32}", agreement.run):  # used as a folder name at the site
            raise DisagreementError(f"the server sent an invalid run name: {agreement.run[:60]!r}")
        return agreement


def _class_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise DisagreementError("cannot parse the server's agreement: its classes are not a list of names")
    if len(names) > _MOST_CLASSES:
        raise DisagreementError(f"the agreement must have at most {_MOST_CLASSES} classes, got {len(names)}")
    classes = tuple(map(str, names))
    longest = max(classes, key=len, default="")
    if len(longest) > _LONGEST_NAME:
        raise DisagreementError(
            f"a class name must have at most {_LONGEST_NAME} characters, got {len(longest)}: {one_line(longest, 60)}"
        )
    return classes


def _without_none(tables: dict[str, object]) -> dict[str, object]:
    """Remove keys without value: TOML, and so the tables of a configuration, have no null."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in tables.items()
        if value is not None
    }
