"""Configurations: one frozen, typed object that says all there is to say about a run; TOML files, presets, `--set`."""

from fedotp.config._compare import difference, flatten
from fedotp.config._config import Config, load_config
from fedotp.config._presets import presets
from fedotp.config._reading import located
from fedotp.config._settings import BackboneSettings, DataSettings

__all__ = [
    "BackboneSettings",
    "Config",
    "DataSettings",
    "difference",
    "flatten",
    "load_config",
    "located",
    "presets",
]
