"""What installed packages bring by entry points: named without being imported, imported when it is asked for."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fedotp._text import one_line
from fedotp.errors import FedotpError


def offered(group: str) -> list[str]:
    """The names that packages offer in a group, sorted; nothing is imported."""
    return sorted(entry_points(group=group).names)


def bring(group: str, name: str, what: str) -> tuple[Any, EntryPoint] | None:
    """What a package offers under a name, imported, and its entry point; None if there is none.

    `what` it is, "method" for example, opens a refusal.
    """
    offers = list(entry_points(group=group, name=name))
    if not offers:
        return None
    entry, *others = offers
    if others:
        packages = " and ".join(package_of(offer) for offer in offers)
        raise FedotpError(f"the {what} {entry.name} is in {packages}; uninstall all but one")
    try:
        return entry.load(), entry
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        raise FedotpError(f"the {what} {entry.name} of {package_of(entry)} cannot be imported: {why}") from error


def package_of(entry: EntryPoint) -> str:
    """The package of an entry point and its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def origin(entry: EntryPoint | None) -> dict[str, str]:
    """For records: nothing of what did not come by an entry point."""
    return {"entry_point": entry.value, "package": package_of(entry)} if entry else {}
