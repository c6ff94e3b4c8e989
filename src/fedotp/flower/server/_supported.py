"""Checks for settings that a server with real sites, or with secure sums, does not support."""

from dataclasses import fields

from fedotp._values import show
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.privacy import epsilon

_SIMULATED = {
    *("federation.dropout", "federation.holdout_clients", "federation.holdout", "evaluation.views"),
    *("data.classes", "data.labels", "attack.name"),
}
_UNSEEN = "the server sees no single update"


def require_servable(config: Config, settings: ServerSettings, names: tuple[str, ...]) -> None:
    """Raise FedotpError for unsupported settings; `names` of the sites are empty if unknown."""
    _require_real(config)
    if config.privacy.unit == "site" and config.privacy.noise:
        config.privacy.require_room(epsilon(config.privacy.noise, 1, config.privacy.delta))
    require_summable(config, settings, len(names))
    if names:
        config.federation.absent(names)  # raises for unknown names


def _require_real(config: Config) -> None:
    """Raise FedotpError for settings that only simulations support."""
    only = {key: getattr(config, key) for key in ("federation", "evaluation", "data", "attack", "authors")}
    for section, settings in only.items():
        for item in fields(settings):
            value, name = getattr(settings, item.name), f"{section}.{item.name}"
            if value != item.default and (section == "authors" or name in _SIMULATED):
                raise FedotpError(f"{name} = {show(value)} is for simulations only; set {show(item.default)}")


def require_summable(config: Config, settings: ServerSettings, n_sites: int) -> None:
    """Raise FedotpError for settings incompatible with secure sums; `n_sites` is 0 if the sites are unknown."""
    if not settings.secure:
        return
    method, rule, defaults = config.method, config.settings.server.rule, ServerSettings()
    drawn = config.settings.federation.n_sampled(n_sites)
    reasons = (
        (
            not method.averages or not method.learns,
            f'method.name = "{method.name}"',
            f"the server of {method.title} does not compute a weighted average of the updates (Eq. 4), or requires "
            'each of them; use "fedotp" or "promptfl"',
        ),
        (rule != "average", f'server.rule = "{rule}"', f"{_UNSEEN} and cannot compare updates"),
        (config.privacy.unit == "site", 'privacy.unit = "site"', f"{_UNSEEN} and cannot clip updates"),
        (
            settings.max_times != defaults.max_times,
            f"max-times = {settings.max_times:g}",
            f"{_UNSEEN} and cannot clip updates; limit a site's weight with --max-images",
        ),
        (
            n_sites > 0 and min(n_sites, drawn) < LEAST_SITES,
            f"{drawn} of {n_sites} sites in a round",
            f"a sum requires at least {LEAST_SITES}, because in a sum of two each site can compute the other's update; "
            "increase federation.participation, or register more sites",
        ),
    )
    for wrong, what, why in reasons:
        if wrong:
            raise FedotpError(f"secure sums are incompatible with {what}: {why}")
