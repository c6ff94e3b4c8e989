"""Configurations: one frozen, typed object that says all there is to say about a run; TOML files, presets, `--set`.

Each part is imported when it is first used: most know the methods and so torch, the list of presets does not.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.config._config import Config, difference, flatten, load_config
    from fedotp.config._keys import Key, explained, keys_of, sections
    from fedotp.config._known import Word, known_keys, known_methods, presets
    from fedotp.config._reading import located
    from fedotp.config._settings import BackboneSettings, DataSettings

__all__ = [
    "BackboneSettings",
    "Config",
    "DataSettings",
    "Key",
    "Word",
    "difference",
    "explained",
    "flatten",
    "keys_of",
    "known_keys",
    "known_methods",
    "load_config",
    "located",
    "presets",
    "sections",
]

__getattr__, __dir__ = lazy_face(__name__, __all__, ["_known", "_reading", "_settings", "_config", "_keys"])
