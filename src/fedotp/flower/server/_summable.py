"""What a server cannot do that sees nothing but sums."""

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import n_sampled
from fedotp.flower.secure import LEAST_SITES
from fedotp.flower.server._settings import ServerSettings

_UNSEEN = "the server sees no site's update"


def require_summable(config: Config, settings: ServerSettings, n_sites: int) -> None:
    """Refuse what does not go with secure sums, each with its reason; `n_sites` are known by name, 0: nobody is."""
    if not settings.secure:
        return
    method, rule, defaults = config.method, config.settings.server.rule, ServerSettings()
    drawn = n_sampled(config.settings.federation, n_sites)
    reasons = (
        (
            not method.averages or not method.learns,
            f'method.name = "{method.name}"',
            f"the server of {method.title} does not average what sites send by their numbers of images (Eq. 4), or "
            'needs each site\'s own, and a sum gives nothing else; "fedotp" and "promptfl" average',
        ),
        (rule != "average", f'server.rule = "{rule}"', f"{_UNSEEN}, and cannot compare it with others"),
        (
            config.privacy.unit == "site",
            'privacy.unit = "site"',
            f"{_UNSEEN}, and cannot clip it",
        ),
        (
            settings.max_update != defaults.max_update,
            f"max-update = {settings.max_update:g}",
            f"{_UNSEEN}, nor how long it is",
        ),
        (
            settings.max_times != defaults.max_times,
            f"max-times = {settings.max_times:g}",
            f"{_UNSEEN}, and cannot shorten it; --max-images says how much a site weighs",
        ),
        (
            n_sites > 0 and min(n_sites, drawn) < LEAST_SITES,
            f"{drawn} of {n_sites} sites in a round",
            f"a sum takes {LEAST_SITES} or more, as of two each knows the other's part; raise "
            "federation.participation, or register more sites",
        ),
    )
    for wrong, what, why in reasons:
        if wrong:
            raise FedotpError(f"secure sums do not go with {what}: {why}")
