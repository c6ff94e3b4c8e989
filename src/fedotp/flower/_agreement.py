"""What server and sites agree on before they work together.

Every message of the server carries it, so that a site that was restarted, or comes late, knows all it needs.
"""

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

PROTOCOL = 4
_KEY = "agreement"
_LONGEST = 32 << 20  # characters of an agreement
_MOST_CLASSES = 50_000  # twice ImageNet's
_LONGEST_NAME, _LONGEST_TEMPLATE = 500, 1000  # the text tower reads some 70 tokens


class DisagreementError(FedotpError):
    """What a site cannot agree to, in a message for the server. Of other errors the server learns nothing more.

    They may name files of the site, and so patients.
    """


@dataclass(frozen=True)
class Agreement:
    """A federation as all its members know it.

    Attributes:
        run: the run's own name, different for every run.
        config: the configuration; where a site has its images is its own business.
        classes: names of the classes, in order; empty as long as the server does not know them.
        template: caption of zero-shot CLIP.
        backbone: digest of the frozen backbone.
        secure: terms of secure sums; None: the server sees every update.
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
        """Equal for equal agreements."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def put(self, record: ConfigRecord) -> None:
        """Write it into a message."""
        record[_KEY] = self.text

    @classmethod
    def of(cls, record: ConfigRecord) -> "Agreement":
        """Read it from a message."""
        try:
            text = str(record[_KEY])
            if len(text) > _LONGEST:
                raise DisagreementError(
                    f"the server's agreement has {len(text)} characters; right is at most {_LONGEST}"
                )
            values = json.loads(text)
            protocol = values["protocol"]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise DisagreementError("the message has no agreement: it does not come from a fedotp server") from None
        if protocol != PROTOCOL:
            raise DisagreementError(
                f"the server speaks protocol {one_line(protocol, 60)}, this site {PROTOCOL}: "
                "install the same version of fedotp"
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
            raise DisagreementError(f"the server's agreement cannot be read ({one_line(repr(error))})") from error
        if len(agreement.template) > _LONGEST_TEMPLATE:
            raise DisagreementError(
                f"the server's template has {len(agreement.template)} characters; right is at most {_LONGEST_TEMPLATE}"
            )
        if not re.fullmatch("[0-9a-f]{32}", agreement.run):  # it becomes a folder at the site
            raise DisagreementError(f"the server calls the run {agreement.run[:60]!r}, which is not a run's name")
        return agreement


def _class_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise DisagreementError("the server's agreement cannot be read: its classes are not a list of names")
    if len(names) > _MOST_CLASSES:
        raise DisagreementError(f"the server names {len(names)} classes; right is at most {_MOST_CLASSES}")
    classes = tuple(map(str, names))
    longest = max(classes, key=len, default="")
    if len(longest) > _LONGEST_NAME:
        raise DisagreementError(
            f"the server calls a class {one_line(longest, 60)}: {len(longest)} characters; "
            f"right is at most {_LONGEST_NAME}"
        )
    return classes


def _without_none(tables: dict[str, object]) -> dict[str, object]:
    """TOML, and so a configuration's tables, have no null: a key without value is left out."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in tables.items()
        if value is not None
    }
