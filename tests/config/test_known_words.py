"""What the shell offers without the code of the methods is what their configurations have."""

from fedotp.config import Config, known_keys, known_methods
from fedotp.methods import METHODS


def test_words_are_those_of_the_methods() -> None:
    ours = {name: method.title for name, method in METHODS.items() if method.__module__.startswith("fedotp.")}
    assert known_methods() == ours
    keys = {"seed"}
    for name in ours:
        tables = Config.preset("demo").override([f"method.name={name}"]).to_dict()
        keys |= {f"{key}.{inner}" for key, table in tables.items() if isinstance(table, dict) for inner in table}
    assert known_keys().keys() == keys
