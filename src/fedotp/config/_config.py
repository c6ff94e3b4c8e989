"""`Config`, which determines a run, and the difference between two of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_origin

from fedotp._authors import BRIDGES, AuthorsSettings, bridged
from fedotp._files import read_regular
from fedotp._imports import import_named
from fedotp._values import Tables, Value, Words, parse_toml, require, show, write_tables
from fedotp.config import _schema
from fedotp.config._known import preset_text, preset_texts
from fedotp.config._settings import BackboneSettings, DataSettings
from fedotp.data.partition import SCHEMES, PartitionSettings, find_scheme
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import (
    AttackSettings,
    ComputeSettings,
    EvaluationSettings,
    OptimizerSettings,
    RoundSettings,
    ServerStepSettings,
    Settings,
    rounds_of,
)
from fedotp.methods import FedOTP, Method, PromptSettings
from fedotp.privacy import PrivacySettings

_BRIDGE = "bridge"  # a key that sets several others: `fedotp._authors.bridged`
_MOST_BYTES = 4 << 20  # size limit of a file
_MOST = 2**63 - 1  # largest integer of TOML and torch


@dataclass(frozen=True)
class Config:
    """The complete settings of a run. Only the data set has no default; the other defaults are the paper's.

    `partition.seed` draws the partition, `seed` everything else.

    Attributes:
        data: images and their preprocessing.
        partition: assignment of images to clients.
        backbone: the frozen CLIP.
        prompt: shape, initialisation and regularisation of a prompt.
        method: the method and its options.
        federation: rounds and participating clients.
        optimizer: gradient steps of a client.
        server: update of the server from the average of a round.
        attack: attacking clients of a simulated federation, and their attack.
        evaluation: times, views and clients of tests.
        compute: device, precision and batching; no effect on the result beyond rounding.
        authors: deviations of the authors' code from the paper, for comparison.
        privacy: protected unit and parameters of differential privacy.
        seed: random seed of everything but the partition.

    Examples:
        >>> config = Config(DataSettings("oxford_pets")).override(["method.mass=0.7", "seed=3"])
        >>> config.method.mass, config.seed
        (0.7, 3)
    """

    data: DataSettings
    partition: PartitionSettings = field(default_factory=PartitionSettings)
    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    method: Method = field(default_factory=FedOTP)
    federation: RoundSettings = field(default_factory=RoundSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    server: ServerStepSettings = field(default_factory=ServerStepSettings)
    attack: AttackSettings = field(default_factory=AttackSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    compute: ComputeSettings = field(default_factory=ComputeSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    authors: AuthorsSettings = field(default_factory=AuthorsSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.seed <= _MOST, "seed", self.seed, "from 0 to 2^63 - 1")
        views, rounds, authors = self.evaluation.views, self.federation, self.authors
        if "novel" in views and self.data.classes == "all":
            right = 'without "novel", which needs data.classes = "base"'
            raise SettingError("evaluation.views", show(views), right)
        if "holdout" in views and not (rounds.holdout or rounds.holdout_clients):
            right = 'without "holdout", which needs federation.holdout or federation.holdout_clients'
            raise SettingError("evaluation.views", show(views), right)
        if authors.normalisation != "clip" and self.data.crops:
            right = f"0 with authors.normalisation = {show(authors.normalisation)}"
            raise SettingError("data.crops", str(self.data.crops), right)
        if authors.evaluate_sampled and self.evaluation.clients:
            right = "0 with authors.evaluate_sampled = true"
            raise SettingError("evaluation.clients", str(self.evaluation.clients), right)
        if authors.mispaired_labels and (self.attack.is_on_data or self.data.labels != "true"):
            right = 'false with an attack on data, and with data.labels other than "true"'
            raise SettingError("authors.mispaired_labels", "true", right)
        if self.attack.is_on_data and self.data.labels != "true":
            right = f'"none", "sign-flip", "scaled" or "colluding" with data.labels = {show(self.data.labels)}'
            raise SettingError("attack.name", show(self.attack.name), right)
        if self.privacy.unit == "site" and self.server.rule != "average":
            right = '"average" with privacy.unit = "site", which already bounds every update'
            raise SettingError("server.rule", show(self.server.rule), right)

    @classmethod
    def from_dict(cls, tables: Mapping[str, object], where: str = "") -> "Config":
        """Read tables from TOML or `to_dict`; error messages begin with `where`, such as a file's name.

        `bridge = "authors"` at top level sets the deviations of the authors' code, except for keys that are given.
        """
        import_named()  # its errors are not those of `where`
        with _schema.located(where):
            config = cls(**_schema.read_tables({key: value for key, value in tables.items() if key != _BRIDGE}))
            if _BRIDGE not in tables:
                return config
            given = {f"{key}.{name}" for key, table in tables.items() if isinstance(table, Mapping) for name in table}
            return config._bridged(tables[_BRIDGE], given)

    @classmethod
    def read(cls, path: str | Path) -> "Config":
        """Read a TOML file."""
        try:
            text = read_regular(path, _MOST_BYTES).decode("utf-8-sig")
        except FileNotFoundError:
            stem = Path(path).stem
            raise FedotpError(
                f"{path}: no such file" + (f"; did you mean the preset {stem}?" if stem in preset_texts() else "")
            ) from None
        except OSError as error:
            raise FedotpError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FedotpError(f"{path}: not UTF-8 text; a configuration must be a TOML file") from None
        return cls._parse(text, str(path))

    @classmethod
    def preset(cls, name: str) -> "Config":
        """Read a built-in preset; `presets` lists them."""
        return cls._parse(preset_text(name), f"preset {name}")

    @classmethod
    def _parse(cls, text: str, where: str) -> "Config":
        try:
            tables = parse_toml(text)
        except ValueError as error:
            raise FedotpError(f"{where}: not valid TOML: {' '.join(str(error).split())}") from None
        return cls.from_dict(tables, where)

    @property
    def resolved(self) -> "Config":
        """This with the method's own optimizer, learning rate, rounds and class prior, as a run records it."""
        optimizer, rounds = self.optimizer.of(self.method), rounds_of(self.method, self.federation)
        return replace(self, optimizer=optimizer, federation=rounds, evaluation=self.evaluation.of(self.method))

    @property
    def settings(self) -> Settings:
        """The part that controls the federation."""
        parts: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(Settings)}
        return Settings(**{**parts, "optimizer": self.optimizer.of(self.method)})

    @property
    def title(self) -> str:
        """The method, with wrong labels or names (of a control) and the attack, if any."""
        attack = [f"{self.attack.name} from {self.attack.share:.0%}"] if self.attack.name != "none" else []
        control = ["shuffled labels"] if self.data.labels == "shuffled" else []
        wrong = [key.replace("_", " ") for key in self.authors.wrong_data]
        return ", ".join([self.method.title, *control, *wrong, *attack])

    def to_dict(self) -> Tables:
        """Return all keys with their values, including defaults, in the order of the file; None for no value."""
        tables: Tables = {"seed": self.seed}
        for section in _schema.SECTIONS:
            part = getattr(self, section)
            values: dict[str, Value] = {item.name: getattr(part, item.name) for item in fields(part)}
            tables[section] = {"name": part.name, **values} if isinstance(part, Method) else values
        return tables

    def to_toml(self) -> str:
        """Return the complete configuration as the text of a TOML file."""
        return write_tables(self.to_dict())

    def override(self, assignments: Sequence[str], then: Sequence[str] = ()) -> "Config":
        """Apply assignments `section.key=value` all at once, like `--set` on the command line.

        Values are TOML or unquoted text; `none` unsets an optional key. Another `method.name` resets the options of the
        method to its defaults, another `partition.scheme` drops settings that do not apply to it; assigning an option
        that the method or scheme does not have is an error. `bridge=authors` sets the deviations of the authors' code,
        except for assigned keys.

        `then` are further assignments, applied as by a second call, but before the bridge, which may depend on them.
        """
        with _schema.located("--set"):
            chosen, later = _assigned(assignments), _assigned(then)
            bridge = chosen.pop(_BRIDGE, None)
            before = Config(**_schema.read_tables(_applied(self.to_dict(), chosen)))
            config = Config(**_schema.read_tables(_applied(before.to_dict(), later))) if later else before
            if bridge is None:
                return config
            same = config.method.name == before.method.name  # options of another method do not apply
            given = [key for key in chosen if same or not key.startswith("method.")]
            return config._bridged(bridge, {*given, *later})

    def _bridged(self, bridge: object, given: Collection[str]) -> "Config":
        """Return this with all settings of a bridge, except for the keys `given` (dotted)."""
        if bridge not in BRIDGES:
            raise SettingError(_BRIDGE, show(bridge), _schema.one_of(BRIDGES, bridge))
        tables: dict[str, Any] = self.to_dict()
        for key, value in bridged(_flat(tables)).items():
            if key not in given:
                section, _, name = key.partition(".")
                tables[section][name] = value
        return Config(**_schema.read_tables(tables))


def _flat(tables: Mapping[str, Any]) -> dict[str, Value]:
    """Return all keys, dotted if in sections."""
    flat: dict[str, Value] = {}
    for key, value in tables.items():
        flat |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def load_config(source: str | Path) -> Config:
    """Read a preset by name, or a file: a `Path`, or a string that ends in .toml."""
    if isinstance(source, Path) or source.endswith(".toml"):
        return Config.read(source)
    return Config.preset(source)


def flatten(config: Config) -> dict[str, Value]:
    """Return the dotted keys ("method.mass") of a resolved configuration with their values; None for no value."""
    return _flat(config.resolved.to_dict())


def difference(a: Config, b: Config) -> dict[str, tuple[Value, Value]]:
    """Return the keys in which two configurations differ, with both values; None for a missing key."""
    left, right = flatten(a), flatten(b)
    return {key: (left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)}


# `--set section.key=value`: from the command line to tables -----------------------------------------------


def _assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return keys and the texts assigned to them; the last assignment to a key wins."""
    found: dict[str, str] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise FedotpError(f"{show(assignment)}: must be key=value, for example method.mass=0.5")
        found[key.strip()] = text
    return found


def _applied(tables: Tables, chosen: dict[str, str]) -> dict[str, Any]:
    """Return the tables with the `chosen` assignments, not checked yet."""
    changed: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in tables.items()}
    method = _parsed(chosen.get("method.name", changed["method"]["name"]), str)
    if method != changed["method"]["name"]:  # options of the same name can differ in meaning
        changed["method"] = {"name": _schema.method_named(method).name}
    _change_scheme(changed, chosen)
    kinds = _schema.all_kinds(_schema.method_named(changed["method"]["name"]))
    for key, text in chosen.items():
        value = _parsed(text, kinds.get(key))
        section, dot, name = key.partition(".")
        table = changed.setdefault(section, {}) if dot else changed
        if not isinstance(table, dict) or "." in name:
            raise _schema.unknown_key(tuple(key.split(".")), list(kinds))
        table[name if dot else key] = value
    return changed


def _parsed(text: str, kind: _schema.Kind | None) -> object:
    """Parse a value as typed: TOML, text without quotes, words between commas, or none if optional."""
    bare, optional = _schema.bare_kind(kind)
    text = text.strip()
    if optional and text.lower() == "none":
        return None
    if bare == Words and not text.startswith("["):
        return tuple(word.strip() for word in text.split(",")) if text else ()
    try:
        read = parse_toml(f"value = {text}")
    except ValueError:
        return text
    value = read["value"] if len(read) == 1 else text
    wants_text = bare is str or get_origin(bare) is Literal
    return text if wants_text and not isinstance(value, str | list | dict) else value


def _change_scheme(tables: dict[str, Any], chosen: dict[str, str]) -> None:
    """Drop settings that do not apply to a new scheme; chosen ones stay, to be rejected later.

    The number of clients is dropped, too, if it follows from the domains or coarse labels of the data.
    """
    scheme = _parsed(chosen.get("partition.scheme", tables["partition"]["scheme"]), str)
    if scheme == tables["partition"]["scheme"] or not (scheme in SCHEMES or find_scheme(str(scheme))):
        return
    settings = PartitionSettings(str(scheme))
    useless = set() if settings.draws_sizes else {"alpha", "min_size"}
    if scheme in ("domain", "domain-dirichlet", "site", "coarse") or scheme not in SCHEMES:
        useless.add("n_clients")
    tables["partition"] = {key: value for key, value in tables["partition"].items() if key not in useless}
