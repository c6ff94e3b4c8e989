"""`fedotp forget` and `fedotp value`, as typed."""

import json

from cli_made import Fedotp

from fedotp.runs.directory import RunDirectory


def test_a_client_is_forgotten_and_the_others_valued(here: RunDirectory, fedotp: Fedotp) -> None:
    names = here.manifest["clients"]
    done = fedotp("forget", "here", "--client", names[1], "--quiet")
    assert done.status == 0, done.err
    assert f"forgotten     {names[1]}" in done.out
    assert f"here still has all of {names[1]}: delete it" in done.err
    left = f"here-without-{names[1]}"
    never = fedotp("run", "tiny.toml", "--set", f'federation.without=["{names[1]}"]', "--out", "never", "--quiet")
    assert never.status == 0, never.err
    checked = fedotp("forget", "--check", f"{left}/forgotten.json", "--against", "never")
    assert checked.status == 0, checked.err
    assert checked.out.endswith("never is bit-equal\n")
    another = fedotp("forget", "--check", left, "--against", "here")
    assert another.status == 1
    assert "here: its state is another\n" in another.err
    assert "without" in fedotp("runs", "show", left).out

    value = fedotp("value", left, "--quiet")
    assert value.status == 0, value.err
    assert "exact, from all coalitions" in value.out
    assert all(name in value.out for name in names if name != names[1])
    again = fedotp("value", left, "--permutations", 2, "--json")
    assert again.status == 0, again.err
    assert json.loads(again.out)["permutations"] == 2
    assert "from 2 random orders" in fedotp("runs", "show", left).out
