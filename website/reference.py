"""Pages and lists generated from the code: `make reference` writes them; a test fails if one is outdated."""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from fedotp._values import write_value
from fedotp.cli import app
from fedotp.config._keys import Key, keys_of, sections
from fedotp.data import DATASETS, DatasetInfo
from fedotp.methods import METHODS, FedOTP, Method

ROOT = Path(__file__).parents[1]
_CONFIGURATION = """\
<!-- `make reference` writes this page from the docstrings of the settings in src/fedotp. -->

# Configuration

One configuration describes a run completely: a preset or a TOML file, changed by `--set`. Keys that it does not set
have their defaults; `fedotp config` prints all of them. A wrong key or value is an error that names the accepted ones.

```sh
fedotp config demo                                             # all keys with their meaning
fedotp config fewshot-pets --set method.mass=0.7 > mine.toml   # a file to start from
fedotp run mine.toml --set seed=3 --set federation.holdout=sketch,photo
fedotp config runs/pets                                        # of an existing run
```

On the command line, values are TOML or unquoted text, lists are comma-separated, and `none` unsets a key that allows
it. Defaults are the paper's. `fedotp --install-completion` adds completion of presets, keys and values to your shell.
"""
_LAYOUTS = """\
<!-- `make reference` writes this page from the trees of tests/data/layouts.py, with which the readers are tested. -->

# Layouts of the data sets

The folder below `data.root` that fedotp expects for each known data set, with the first few classes, and the caption of
zero-shot CLIP. [Data](data.md) describes other accepted layouts, the lists of CoOp's splits, and layouts for your own
images; `fedotp data info NAME` prints what was found.

| name | | classes | domains | train | test | `fedotp data download` |
|---|---|---:|---:|---:|---:|---|
"""
_COMMANDS = """\
<!-- `make reference` writes this page. The texts are the help texts in src/fedotp/cli; as it is generated, its words do
not count towards the documentation's limit. -->

# Commands

All commands with their arguments and options, as `fedotp COMMAND --help` prints them. Every command also accepts
`--help` (`-h`) and `--import MODULE`, for [your own methods, data sets and partition schemes](../methods.md#yours).
"""
_EVERYWHERE = {"help", "imports", "version"}
_METHODS = {name: method for name, method in METHODS.items() if method.__module__.startswith("fedotp.")}
_SHOWN = 3  # folders of images shown per folder
_IMAGES = {".jpg", ".JPEG", ".png"}
_AS_IS = re.compile(r"(`[^`]*`|https://\S*[^\s.,;:])")


def configuration() -> str:
    """Write the page of all keys."""
    keys = keys_of(FedOTP)
    parts = [_CONFIGURATION, _table(key for key in keys if "." not in key.name)]
    for section, meaning in sections().items():
        own = [key for key in keys if key.name.startswith(f"{section}.")]
        parts.append(f"## {section}\n\n{_text(meaning[0].upper() + meaning[1:])}\n")
        parts.append(_methods() if section == "method" else _table(own))
    return "\n".join(parts)


def layouts() -> str:
    """Write the page of the data sets' trees, from the small copies with which the readers are tested."""
    sys.path.insert(0, str(ROOT / "tests" / "data"))
    from layouts import LAYOUTS

    sys.path.pop(0)
    parts = [_LAYOUTS + "".join(f"{_row(info)}\n" for info in DATASETS.values())]
    for info in (info for info in DATASETS.values() if not info.in_box):
        with tempfile.TemporaryDirectory() as place:
            folder = LAYOUTS[info.name][0](Path(place))
            tree = "\n".join([f"{folder.name}/", *(f"  {line}" for line in _tree(folder))])
        described = not info.advice or "split_zhou_" in info.advice  # CoOp's lists, in data.md
        advice = "" if described else f" {info.advice[0].upper()}{info.advice[1:]}."
        facts = f"`{info.name}`: `{info.template}`{_text(advice)}"
        parts.append(f"## {info.title}\n\n{facts}\n\n```\n{tree}\n```\n")
    return "\n".join(parts)


def commands() -> str:
    """Write the page of all commands, in the panels of `fedotp --help`."""
    parts, last = [_COMMANDS], ""
    for name, command, panel in _leaves("fedotp", typer.main.get_command(app)):
        given = [param for param in command.params if param.name not in _EVERYWHERE]
        arguments = [_spelt(param) for param in given if param.param_type_name == "argument"]
        usage = " ".join([name, *arguments, *["[OPTIONS]"] * (len(given) > len(arguments))])
        text, _, examples = (command.help or "").replace("\b\n", "").partition("Example")
        lines = [line.strip() for line in re.split(r"\n|, (?=fedotp)", examples.partition(":")[2].strip())]
        rows = [f"| {_code(param)} | {_preset(param)} | {_text(param.help or '')} |" for param in given]
        parts += [f"## {panel}\n"] if panel != last else []
        parts += [f"### {name}\n\n{_text(text.strip())}\n\n```\n{usage}\n```\n"]
        parts += ["\n".join(["| | default | meaning |", "|---|---|---|", *rows]) + "\n"] if rows else []
        parts += ["\n".join(["```sh", *lines, "```"]) + "\n"] if lines else []
        last = panel
    return "\n".join(parts)


def words() -> str:
    """Write the names of methods and keys, for shell completion without importing torch."""
    keys = {key.name: _word(key) for key in keys_of(FedOTP) if not key.name.startswith("method.")}
    keys["method.name"] = {"line": "method", "choices": list(_METHODS)}
    methods = {
        name: {"title": method.title, "options": {key.name.partition(".")[2]: _word(key) for key in _options(method)}}
        for name, method in _METHODS.items()
    }
    return json.dumps({"keys": keys, "methods": methods}, indent=1) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands,
    "docs/configuration.md": configuration,
    "docs/layouts.md": layouts,
    "src/fedotp/config/words.json": words,
}


def _leaves(name: str, command: Any, panel: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the full name, command and panel of every command that is not a group."""
    if not hasattr(command, "commands"):
        yield name, command, panel
    for word, below in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {word}", below, panel or below.rich_help_panel)


def _spelt(param: Any) -> str:
    """Write an argument for the usage line."""
    name = (param.metavar or param.name.upper()).strip("[]")
    return name if param.required else f"[{name}]"


def _code(param: Any) -> str:
    """Write an argument or an option for a table."""
    argument = param.param_type_name == "argument"
    kind = param.name if argument else "" if param.is_flag else param.type.name.split()[0]
    value = param.metavar or kind.upper()
    names = [value] if argument else [f"{name} {value}".strip() for name in param.opts]
    return ", ".join(f"<code>{name.replace('|', '&#124;')}</code>" if "|" in name else f"`{name}`" for name in names)


def _preset(param: Any) -> str:
    """Write the default of an argument or option, empty if it has none."""
    if param.required or isinstance(param.show_default, str):
        return "required" if param.required else param.show_default
    return "" if param.default in (None, False, "") or not param.show_default else f"`{param.default}`"


def _methods() -> str:
    parts = ["`method.name` is one of the following; the other keys of the section are options of the method.\n"]
    for method in _METHODS.values():
        own = _options(method)
        parts.append(
            f"### {method.name}\n\n{method.title}, {method.reference}.{'' if own else ' It has no options.'}\n"
        )
        parts += [_table(own)] if own else []
    return "\n".join(parts)


def _options(method: type[Method]) -> list[Key]:
    return [key for key in keys_of(method) if key.name.startswith("method.") and key.name != "method.name"]


def _word(key: Key) -> dict[str, str | list[str]]:
    return {"line": key.line, "choices": list(key.choices) or ["true", "false"] * (key.right == "true or false")}


def _table(keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {_default(key)} | {_values(key)} | {_text(key.meaning)} |" for key in keys]
    return "\n".join(["| key | default | values | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _default(key: Key) -> str:
    if key.name == "data.dataset":
        return "required"
    return "none" if key.default is None else f"`{write_value(key.default)}`"


def _values(key: Key) -> str:
    return ", ".join(f"`{choice}`" for choice in key.choices) if key.choices else _text(key.right)


def _text(words: str) -> str:
    """Escape text for Markdown, also in table cells; code between backticks stays, addresses become links."""
    parts = _AS_IS.split(words)  # odd ones are code or addresses
    return "".join(_as_is(part) if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _as_is(words: str) -> str:
    return words if words.startswith("`") else f"<{words}>"


def _escaped(words: str) -> str:
    return re.sub(r"([|*_\[\]])", r"\\\1", words.replace("<", "&lt;"))


def _row(info: DatasetInfo) -> str:
    download = "included" if info.in_box else "yes" if info.resources else "manual"
    numbers = f"{info.n_classes} | {info.n_domains} | {info.n_train:,} | {info.n_test:,}"
    return f"| `{info.name}` | {info.title} | {numbers} | {download} |"


def _tree(folder: Path) -> list[str]:
    """List a folder's content: images by suffix, and the first of similar folders."""
    lines: list[str] = []
    seen: list[list[str]] = []
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    for number, path in enumerate(folders):
        inner = _tree(path)
        if len(inner) == 1:
            if number == _SHOWN:
                lines.append("...")
            lines += [f"{path.name}/{inner[0]}"] if number < _SHOWN else []
        elif inner in seen:
            lines.append(f"{path.name}/...")
        else:
            lines += [f"{path.name}/", *(f"  {line}" for line in inner)]
        seen.append(inner)
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    lines += [path.name for path in files if path.suffix not in _IMAGES]
    return lines + [f"*{suffix}" for suffix in sorted({path.suffix for path in files} & _IMAGES)]


if __name__ == "__main__":
    for name, write in FILES.items():
        (ROOT / name).write_text(write(), encoding="utf-8")
