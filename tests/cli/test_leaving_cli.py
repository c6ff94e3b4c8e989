"""`fedotp forget` and `fedotp value`, as typed."""

import json
from pathlib import Path

from cli_made import Fedotp


def test_a_site_is_forgotten_and_its_worth_told(place: Path, fedotp: Fedotp) -> None:
    assert fedotp("run", "tiny.toml", "--out", "run", "--quiet").status == 0
    names = json.loads((place / "run/manifest.json").read_text())["clients"]
    done = fedotp("forget", "run", "--client", names[1], "--quiet")
    assert done.status == 0, done.err
    assert f"forgotten     {names[1]}" in done.out
    assert f"run still has all of {names[1]}: delete it" in done.err
    left = f"run-without-{names[1]}"
    never = fedotp("run", "tiny.toml", "--set", f'federation.without=["{names[1]}"]', "--out", "never", "--quiet")
    assert never.status == 0, never.err
    checked = fedotp("forget", "--check", f"{left}/forgotten.json", "--against", "never")
    assert checked.status == 0, checked.err
    assert checked.out.endswith("never is bit-equal\n")
    another = fedotp("forget", "--check", left, "--against", "run")
    assert another.status == 1
    assert "run: its state is another\n" in another.err
    assert "without" in fedotp("runs", "show", left).out

    value = fedotp("value", left, "--quiet")
    assert value.status == 0, value.err
    assert "exact, from all coalitions" in value.out
    assert all(name in value.out for name in names if name != names[1])
    again = fedotp("value", left, "--permutations", 2, "--json")
    assert again.status == 0, again.err
    assert json.loads(again.out)["permutations"] == 2
    assert "from 2 random orders" in fedotp("runs", "show", left).out


def test_what_is_asked_for_wrongly_is_told_in_one_line(place: Path, fedotp: Fedotp) -> None:
    for words, line in (
        (
            ("forget",),
            "error: name a run and clients, for example `fedotp forget runs/demo --client client-3`; see --help\n",
        ),
        (
            ("forget", "run"),
            "error: name a run and clients, for example `fedotp forget runs/demo --client client-3`; see --help\n",
        ),
        (
            ("forget", "run", "--check", "x"),
            "error: --check takes one certificate: leave out RUN, --client and --out\n",
        ),
        (
            ("forget", "none", "--client", "a"),
            "error: none is not a run: it has no config.toml; `fedotp runs list` lists the runs\n",
        ),
        (("value", "none"), "error: none is not a run: it has no config.toml; `fedotp runs list` lists the runs\n"),
    ):
        refused = fedotp(*words)
        assert (refused.status, refused.err) == (2, line)
    missing = fedotp("forget", "--check", "none/forgotten.json")
    assert missing.status == 2
    assert missing.err.startswith("error: cannot read none/forgotten.json")
