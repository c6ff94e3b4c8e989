"""`fedotp audit`: lower bounds on leakage, from canaries or a membership attack."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._files import write_atomically
from fedotp.cli import _options
from fedotp.cli.show import SOME_FAILED, facts, print_paths, print_table
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.audit import Audit, Estimate, Probe
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

_UNITS = {"example": "one training image", "group": "one group of training images", "site": "one site"}
_canary = partial(typer.Option, rich_help_panel="Canaries")
CanariesOption = Annotated[int | None, _canary(metavar="M", help="Number of canaries.", show_default="500")]
ProbeOption = Annotated[bool, typer.Option("--probe", help="Attack an existing run instead.")]


@app.command()
def audit(
    source: _options.SourceOrRunArgument = None,
    changes: _options.SetOption = None,
    confidence: Annotated[float, typer.Option(help="Confidence of bounds and intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write; default: audit.json or probe.json in the run.")
    ] = None,
    canaries: CanariesOption = None,
    probe: ProbeOption = False,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
    quiet: _options.QuietOption = False,
    as_json: _options.JsonOption = False,
) -> None:
    """Measure a lower bound on leakage: epsilon from canaries, or membership from an attack on a run.

    Without --probe, a federation with differential privacy is run once in memory with canaries, and an attacker guesses
    which of them were included: this bounds epsilon from below. A RUN is repeated in this way. The exit status is 1 if
    the promised epsilon is refuted. With --probe, the losses of training images are compared with those of test images
    of the same clients. Results are saved in the run's directory for the report. Stronger attacks may find more.

    \b
    Examples:
      fedotp audit demo --set privacy.unit=example --set privacy.noise=2
      fedotp audit runs/private --canaries 1000
      fedotp audit runs/demo --probe
    """
    from fedotp.runs.directory import RunDirectory

    where = source or _options.SOURCE
    directory = RunDirectory.open(where) if Path(where).is_dir() else None
    if directory is not None and changes and out is None:
        raise FedotpError(f"--set changes the settings of {where}: give the file to write with --out")
    chosen = [*(changes or []), *([] if device == _options.DEVICE else [f"compute.device={device}"])]
    chosen += [] if backbone is None else [f"backbone.name={backbone}"]
    if probe and canaries is not None:
        raise FedotpError("--canaries: unsupported with --probe, which trains nothing; remove it")
    if probe and directory is None:
        raise FedotpError(f"--probe needs the directory of a run, got {where}")
    from fedotp.audit import audit as audit_config
    from fedotp.audit import probe_run
    from fedotp.cli.progress import run_progress
    from fedotp.config import load_config

    found: Audit | Probe
    with run_progress(quiet=quiet or as_json) as observer:
        if probe and directory is not None:
            found = probe_run(directory.path, chosen, confidence=confidence, observer=observer)
        else:
            config = (load_config(where) if directory is None else directory.config).override(chosen)
            number = {} if canaries is None else {"canaries": canaries}
            found = audit_config(config, **number, confidence=confidence, like=directory, observer=observer)
    _finish(found, directory, out, as_json=as_json)


def _finish(found: "Audit | Probe", directory: "RunDirectory | None", out: Path | None, *, as_json: bool) -> None:
    """Write the result to the file or into the run, and print it."""
    from fedotp.audit import Audit
    from fedotp.cli.progress import print_json

    written = out
    if out is not None:
        write_atomically(out, json.dumps(found.as_dict(), indent=2) + "\n")
    elif directory is not None:
        written = directory.save_finding("audit" if isinstance(found, Audit) else "probe", found.as_dict())
    if as_json:
        print_json(found.as_dict())
    else:
        if isinstance(found, Audit):
            _print_audit(found)
        else:
            _print_probe(found)
        if written is not None:
            print_paths([("written to", written)])
    if isinstance(found, Audit) and found.is_broken:
        raise typer.Exit(SOME_FAILED)


def _print_audit(found: "Audit") -> None:
    bound = found.bound
    guesses = f"{bound.right} of {bound.guesses} guesses correct, {bound.confidence:.0%} confidence"
    rows: list[tuple[object, ...]] = [("at least", f"epsilon {bound.epsilon:.3g}", f"from every release: {guesses}")]
    if found.upper is None:
        rows.append(("at most", "unbounded", "no noise (privacy.noise)"))
    else:
        rows.append(("at most", f"epsilon {found.upper:.3g}", f"by the accountant; {_UNITS[found.unit]} more or less"))
    rows.append(("at delta", f"{bound.delta:g}"))
    rows.append(("canaries", bound.canaries, f"{bound.included} included"))
    facts(rows)
    if found.is_broken:
        print("The privacy guarantee is violated: more leaks than the accountant allows.")


def _print_probe(found: "Probe") -> None:
    print(f"{found.members:,} training images against {found.others:,} others, separately for each client")
    shares = sorted(found.control.tpr)
    titles = [f"TPR at {share:.0%} FPR" for share in shares]
    shown: list[tuple[str, ...]] = []
    rows = [(attack.target, attack.score, attack.separation) for attack in found.attacks]
    for target, score, separation in (*rows, ("zero-shot CLIP", "loss", found.control)):
        numbers = [_shown(separation.tpr[share], 100, 1) for share in shares]
        shown.append((target, score, _shown(separation.auc), *numbers))
    if found.allowed is not None:
        rates = [f"{100 * found.allowed.tpr[share]:.1f}" for share in shares]
        shown.append(("at most", "any", f"{found.allowed.auc:.3f}", *rates))
    print_table(["attack on", "by", "AUC", *titles], shown, right=["AUC", *titles])
    print(f"learned: reduction of the loss against zero-shot CLIP; intervals hold jointly with {found.confidence:.0%}")
    if (most := found.allowed) is not None:
        print(f"at most: average limit of any attack by the accountant, epsilon {most.epsilon:.3g}")
    print(_verdict(found))


def _shown(estimate: "Estimate", unit: float = 1, digits: int = 3) -> str:
    value, low, high = (f"{unit * number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _verdict(found: "Probe") -> str:
    if not found.is_fair:
        return (
            "Zero-shot CLIP, trained on none of these images, separates them as well: they differ by more than "
            "membership, so these numbers do not measure membership alone."
        )
    separating = [attack for attack in found.attacks if attack.separation.auc.low > 0.5]
    if not separating:
        return "Neither attack separates members from others. Stronger attacks may: this is a lower bound."
    strongest = max(separating, key=lambda attack: attack.separation.auc.value)
    what = f"{strongest.target} by {strongest.score}, AUC {_shown(strongest.separation.auc)}"
    return f"Members can be recognised: {what}. This is a lower bound."
