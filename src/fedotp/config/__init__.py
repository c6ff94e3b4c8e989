"""Configurations: one frozen, typed object that determines a run; TOML files, presets, `--set`."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.config._config import Config as Config
    from fedotp.config._config import difference as difference
    from fedotp.config._config import flatten as flatten
    from fedotp.config._config import load_config as load_config
    from fedotp.config._keys import explained as explained
    from fedotp.config._known import known_keys as known_keys
    from fedotp.config._known import known_methods as known_methods
    from fedotp.config._known import presets as presets
    from fedotp.config._schema import located as located
    from fedotp.config._schema import read_fields as read_fields
    from fedotp.config._settings import BackboneSettings as BackboneSettings
    from fedotp.config._settings import DataSettings as DataSettings

__getattr__, __dir__ = lazy_face(__name__)
