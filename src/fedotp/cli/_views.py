"""The views of a run as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from fedotp._text import printable
from fedotp.cli.show import cell, listing

_MODELS = "personal: what each client predicts with; global: the method's global part."
_MEANS = (
    "HM: harmonic mean of base and novel; HM3: of personal (local), base and novel; CM: mean of personal and HM. "
    "The base of the global model is the view global."
)


def print_views(numbers: Mapping[str, Any]) -> None:
    """Print `views` of a summary, or of an evaluation in the shape of one, and which there cannot be."""
    from fedotp.federation import percent

    views: Sequence[Mapping[str, Any]] = numbers.get("views", ())
    means: Mapping[str, Mapping[str, Any]] = numbers.get("base_to_novel", {})
    over_rounds = any(view["evaluations"] > 1 for view in views)
    titles = ("classes", "images", "clients", "last %", *(("best %", "in round", "mean of last 5 %") * over_rounds))
    table = listing("view", "model", *titles, right=titles)

    def add(name: str, model: str, sizes: Sequence[str], values: Mapping[str, Any]) -> None:
        more = [percent(values["best"]), values["best_round"], percent(values["last_five"])] if over_rounds else []
        table.add_row(*map(cell, (name, model, *sizes, percent(values["last"]), *more)))

    for view in views:
        sizes = [f"{n:,}" for n in (view["classes"], view["images"], len(view["clients"]))]
        add(view["view"], view["model"], sizes, view)
    for model, found in means.items():
        for name in ("hm", "hm3", "cm"):
            add(name.upper(), model, ["", "", ""], found[name])
    if views:
        print()
        Console().print(table)
        Console().print(cell(f"{_MODELS} {_MEANS}" if means else _MODELS, "dim"))
    for missing in numbers.get("missing_views", ()):
        print(f"no {printable(missing['view'])} view: {printable(missing['why'])}")
