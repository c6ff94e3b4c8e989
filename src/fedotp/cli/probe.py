"""`fedotp probe`: can one tell by what was learned which images it was learned from?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedotp._files import write_atomically
from fedotp.cli._options import DEVICE, BackboneOption, ClassifierArgument, DeviceOption, QuietOption
from fedotp.cli.show import cell, listing, print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.audit import Estimate, Probe

app = typer.Typer()

_WHAT = {"zero_shot": "zero-shot CLIP"}


@app.command()
def probe(
    source: ClassifierArgument,
    members: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Of a bundle: images trained on, a folder per class.", show_default=False),
    ] = None,
    others: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Of a bundle: images like them, not trained on.", show_default=False),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Of a bundle: the run it comes from, with its images.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The JSON file to write; probe.json in the run if not given.", show_default=False),
    ] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = DEVICE,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, client by client.")] = False,
) -> None:
    """Try to tell images that were trained on from test images of the same clients.

    Of a run, the part that the server sends and the clients' own classifiers are attacked; of a bundle, the bundle.
    Other attacks find more: what is printed is what leaks at least.

    \b
    Examples:
      fedotp probe runs/demo
      fedotp probe client-3.bundle --run runs/demo
      fedotp probe client-3.bundle --members train --others test
    """
    is_run = (source / "config.toml").is_file()
    if is_run and (members or others or run):
        raise FedotpError(f"{source} is a run, which knows its members: leave out --members, --others and --run")
    if not is_run and (bool(members) != bool(others) or bool(members) == bool(run)):
        raise FedotpError(f"{source}: to know its members give --run RUN, or --members DIR and --others DIR")
    from fedotp.audit import probe_bundle, probe_bundle_of_run, probe_run
    from fedotp.cli.progress import print_json, run_progress

    with run_progress(quiet=quiet or as_json) as observer:
        if is_run:
            changes = [] if device == DEVICE else [f"compute.device={device}"]
            changes += [] if backbone is None else [f"backbone.name={backbone}"]
            found = probe_run(source, changes, observer=observer)
        else:
            from fedotp.classifier import load

            classifier = load(source, backbone=backbone, device=device)
            if run is not None:
                found = probe_bundle_of_run(classifier, run, observer=observer)
            else:
                assert members is not None and others is not None  # noqa: PT018  # refused above
                found = probe_bundle(classifier, members, others)
    written = _write(found, source if is_run else None, out)
    if as_json:
        print_json(found.as_dict())
        return
    _print(found)
    if written is not None:
        print_paths([("written to", written)])


def _write(found: "Probe", run: Path | None, out: Path | None) -> Path | None:
    """Write it to the file, or into the run; a bundle is left as it is."""
    import json

    if out is not None:
        write_atomically(out, json.dumps(found.as_dict(), indent=2) + "\n")
        return out
    if run is None:
        return None
    from fedotp.runs.directory import RunDirectory

    return RunDirectory.open(run).save_finding("probe", found.as_dict())


def _print(found: "Probe") -> None:
    from fedotp.audit import Attack

    print(f"{found.members:,} images trained on against {found.others:,} others, clients apart")
    shares = sorted(found.control.rates)
    titles = [f"TPR at {share:.0%} FPR" for share in shares]
    table = listing("attack on", "by", "AUC", *titles, right=["AUC", *titles])
    for attack in (*found.attacks, Attack("zero_shot", "loss", found.control)):
        numbers = [_shown(attack.separation.rates[share], 100, 1) for share in shares]
        what = _WHAT.get(attack.target, attack.target)
        table.add_row(*map(cell, (what, attack.score, _shown(attack.separation.auc), *numbers)))
    if found.allowed is not None:
        rates = [f"{100 * found.allowed.rates[share]:.1f}" for share in shares]
        table.add_row(*map(cell, ("at most", "any", f"{found.allowed.auc:.3f}", *rates)))
    Console().print(table)
    print(f"learned: how far the loss is below zero-shot CLIP's; intervals hold together with {found.confidence:.0%}")
    if (most := found.allowed) is not None:
        print(f"at most: what the account, epsilon {most.epsilon:.3g}, allows any attack on what it covers, on average")
    print(_verdict(found))


def _shown(estimate: "Estimate", unit: float = 1, digits: int = 3) -> str:
    value, low, high = (f"{unit * number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _verdict(found: "Probe") -> str:
    """What may be said, and no more."""
    if not found.is_fair:
        return (
            "Zero-shot CLIP, which has seen none of them, tells them apart, too: they differ in more than membership, "
            "and these numbers are not of membership alone."
        )
    telling = [attack for attack in found.attacks if attack.separation.auc.low > 0.5]
    if not telling:
        return "Neither attack tells members from others here. Stronger ones may: this is what leaks at least."
    strongest = max(telling, key=lambda attack: attack.separation.auc.value)
    what = f"{strongest.target} by {strongest.score}, AUC {_shown(strongest.separation.auc)}"
    return f"Members can be told: {what}. This is what leaks at least."
