"""Faces of packages whose parts are imported when a name of theirs is first used: a command starts faster without."""

import importlib
from collections.abc import Callable, Sequence


def lazy_face(
    package: str, names: Sequence[str], parts: Sequence[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`, which shows `names`.

    They are looked for in its `parts`, the lightest first.
    """
    shown = frozenset(names)

    def find(name: str) -> object:
        if name in shown:
            for part in parts:
                module = importlib.import_module(f"{package}.{part}")
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(shown)
