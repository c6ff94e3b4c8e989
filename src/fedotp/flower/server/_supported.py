"""Settings that a server with real sites does not support: those for simulations, and those against secure sums."""

from dataclasses import fields

from fedotp._values import show
from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.privacy import epsilon

_UNSEEN = "the server sees no site's update"


def require_servable(config: Config, settings: ServerSettings, names: tuple[str, ...]) -> None:
    """Refuse settings that a server does not support, with sites of these names (none: names are not known)."""
    _require_real(config)
    if config.privacy.unit == "site" and config.privacy.noise:
        config.privacy.require_room(epsilon(config.privacy.noise, 1, config.privacy.delta))
    require_summable(config, settings, len(names))
    if names:
        config.federation.absent(names)  # refuses names that no site has


def _require_real(config: Config) -> None:
    """Refuse what only a simulation can do."""
    for key, none in (("dropout", 0), ("holdout_clients", 0), ("holdout", ())):
        if value := getattr(config.federation, key):
            raise FedotpError(
                f"federation.{key} = {show(value)}: is for simulations, real sites disconnect on their own; "
                f"set {show(none)}"
            )
    if others := set(config.evaluation.views) - {"personal"}:
        raise FedotpError(
            f"evaluation.views has {listed(sorted(others))}: is for simulations, a site has its own images only; "
            'set ["personal"]'
        )
    if config.data.classes != "all":
        raise FedotpError(f'data.classes = {show(config.data.classes)}: is for simulations; set "all"')
    if config.data.labels != "true":
        raise FedotpError(f'data.labels = {show(config.data.labels)}: is a control for simulations; set "true"')
    if config.attack.name != "none":
        raise FedotpError(f'attack.name = {show(config.attack.name)}: is for simulations; set "none"')
    for item in fields(config.authors):
        if (value := getattr(config.authors, item.name)) != item.default:
            raise FedotpError(
                f"authors.{item.name} = {show(value)}: is for simulations, to compare with the authors' code; "
                f"set {show(item.default)}"
            )


def require_summable(config: Config, settings: ServerSettings, n_sites: int) -> None:
    """Refuse what does not go with secure sums, each with its reason; `n_sites` have known names (0: none)."""
    if not settings.secure:
        return
    method, rule, defaults = config.method, config.settings.server.rule, ServerSettings()
    drawn = config.settings.federation.n_sampled(n_sites)
    reasons = (
        (
            not method.averages or not method.learns,
            f'method.name = "{method.name}"',
            f"the server of {method.title} does not average what sites send by their numbers of images (Eq. 4), or "
            'needs each site\'s own, and a sum gives nothing else; "fedotp" and "promptfl" average',
        ),
        (rule != "average", f'server.rule = "{rule}"', f"{_UNSEEN}, and cannot compare it with others"),
        (config.privacy.unit == "site", 'privacy.unit = "site"', f"{_UNSEEN}, and cannot clip it"),
        (
            settings.max_times != defaults.max_times,
            f"max-times = {settings.max_times:g}",
            f"{_UNSEEN}, and cannot shorten it; --max-images limits a site's weight",
        ),
        (
            n_sites > 0 and min(n_sites, drawn) < LEAST_SITES,
            f"{drawn} of {n_sites} sites in a round",
            f"a sum takes {LEAST_SITES} or more, because in a sum of two each site knows the other's summand; raise "
            "federation.participation, or register more sites",
        ),
    )
    for wrong, what, why in reasons:
        if wrong:
            raise FedotpError(f"secure sums do not go with {what}: {why}")
