"""The policy of a site's owner: limits on every order of the server, from a TOML file that can be signed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fedotp._files import read_file
from fedotp._text import one_line
from fedotp._values import Words, parse_toml, require
from fedotp.config import located, read_fields
from fedotp.errors import FedotpError, listed
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower.site._site_settings import Hidden, Share

_MOST_BYTES = 1 << 20
_STRONG = 2 / 3  # from this threshold of a secure sum, a server gains nothing from false lists of survivors


@dataclass(frozen=True)
class Policy:
    """The limits of a site's owner; each is optional.

    Attributes:
        federations: fingerprints of the permitted authorities (ca.crt), as `fedotp keys show` prints them.
        methods, classes: the permitted methods and classes.
        rounds: the largest number of rounds of a run, and of updates in it, repeated rounds included.
        hours: the longest duration of a run, from its first order at this site.
        local_steps: the largest number of local training steps in a round, or of fine-tuning before an evaluation.
        share: the most that the site reports besides its update; see SiteSettings.
        secure_sums: require secure sums that the server cannot open for a single site.
        secure_sites: the smallest number of sites in a secure sum.
        epsilon: the largest epsilon of everything that leaves the site, over all runs together.
        unit, delta, noise: the protected unit, the largest delta (at most 1 / training images) and the smallest noise
            multiplier; if only some of `epsilon` and these are given, "example", 1e-5 and 0.5.
    """

    federations: Words | None = None
    methods: Words | None = None
    classes: Words | None = None
    rounds: int | None = None
    hours: float | None = None
    local_steps: int | None = None
    share: Share = "predictions"
    secure_sums: bool = False
    secure_sites: int = LEAST_SITES
    epsilon: float | None = None
    unit: Hidden | None = None
    delta: float | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        for key in ("rounds", "hours", "local_steps", "epsilon", "delta", "noise"):
            value = getattr(self, key)
            require(value is None or value > 0, key, value, "more than 0")
        require(self.secure_sites >= LEAST_SITES, "secure_sites", self.secure_sites, f"at least {LEAST_SITES}")
        if {self.epsilon, self.unit, self.delta, self.noise} != {None}:
            for key, default in (("unit", "example"), ("delta", 1e-5), ("noise", 0.5)):
                object.__setattr__(self, key, getattr(self, key) or default)

    def require(
        self, agreement: Agreement, *, authority: str = "", round_: int = 0, hours: float = 0.0, n_images: int = 1
    ) -> None:
        """Raise DisagreementError for an order beyond the policy.

        `authority` is the fingerprint of the federation's, `hours` the time since the run's first order. `n_images` is
        a lower limit of the training images.
        """
        config, secure = agreement.config, agreement.secure
        privacy, rounds = config.privacy, config.federation
        if self.secure_sums and secure is None:
            raise refusal("secure sums are required; start the server with --secure")
        units = None if self.unit is None else (self.unit, "group")
        choices: list[tuple[str, str, Sequence[str] | None]] = [
            ("method.name", config.method.name, self.methods),
            ("privacy.unit", privacy.unit, units),
            *(("a class", name, self.classes) for name in agreement.classes),
        ]
        self.require_authority(authority)
        for choice in choices:
            _require_one_of(*choice)
        epochs = max(rounds.local_epochs, config.method.finetune_epochs or 0)
        n_steps = epochs * -(-n_images // rounds.batch_size)
        limits = (
            ("rounds", max(rounds.rounds, round_), None, self.rounds),
            ("hours since the first order of the run", hours, None, self.hours),
            ("local steps in a round", n_steps, None, self.local_steps),
            ("privacy.delta", privacy.delta, None, self.delta_for(n_images)),
            ("privacy.noise", privacy.noise, self.noise, None),
            ("--secure-threshold", secure.share if secure else 0, _STRONG if self.secure_sums else None, None),
        )
        for what, value, least, most in limits:
            require_between(what, value, least=least, most=most)

    def require_authority(self, authority: str) -> None:
        """Raise DisagreementError if the policy does not permit the federation's authority, a fingerprint."""
        _require_one_of("the authority of the federation", authority, self.federations)

    def delta_for(self, n_images: int) -> float | None:
        """Return the largest delta for a site with `n_images` training images; None if privacy is not required."""
        return None if self.delta is None else min(self.delta, 1 / max(n_images, 1))


def refusal(why: str) -> DisagreementError:
    """Return the error for an order beyond a policy; the server receives it."""
    return DisagreementError(f"policy: {why}")


def _require_one_of(what: str, given: str, allowed: Sequence[str] | None) -> None:
    if allowed is not None and given not in allowed:
        raise refusal(f"{what} must be one of {listed(allowed)}; got {one_line(given, 100) or 'none'}")


def require_between(what: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
    """Raise the refusal of a value outside of the limits of a policy."""
    if least is not None and value < least:
        raise refusal(f"{what} must be at least {least:.10g}, got {value:.10g}")
    if most is not None and value > most:
        raise refusal(f"{what} must be at most {most:.10g}, got {value:.10g}")


@lru_cache(maxsize=1)
def parse_policy(text: str) -> Policy:
    """Parse a policy; unknown keys are errors."""
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise FedotpError(f"not valid TOML: {one_line(error)}") from error
    return read_fields(Policy, tables, "policy")


def read_policy(path: Path, key: Path | None) -> str:
    """Read and check a policy and, with the owner's public `key`, its signature in PATH.sig; return its text."""
    content = read_file(path, _MOST_BYTES)
    if key is not None:
        _check_signature(path, content, key)
    with located(str(path)):
        try:
            text = content.decode()
        except ValueError:
            raise FedotpError("must be UTF-8") from None
        parse_policy(text)
    return text


def _check_signature(path: Path, content: bytes, key: Path) -> None:
    """Raise FedotpError unless PATH.sig is from `openssl dgst -sha384 -sign` and the private half of `key`."""
    signature = read_file(path.with_name(f"{path.name}.sig"), _MOST_BYTES)
    try:
        public = load_pem_public_key(read_file(key, _MOST_BYTES))
    except (ValueError, UnsupportedAlgorithm):
        public = None
    try:
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(signature, content, ec.ECDSA(SHA384()))
        elif isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, content, padding.PKCS1v15(), SHA384())
        else:
            raise FedotpError(f"{key} must be a public key (EC or RSA) in PEM")
    except InvalidSignature:
        raise FedotpError(f"{path}: {path.name}.sig is not its signature with the key {key}; sign it again") from None
