"""The events of a server and its sites, all in this process."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from near_sites import NearGrid, make_deployable, parts

from fedotp.flower._events import handling, recording_life
from fedotp.flower.status import Status

Events = list[tuple[str, dict[str, Any]]]


def test_a_run_records_orders_updates_and_rounds_which_its_status_shows(inputs: Path, tmp_path: Path) -> None:
    grid, events = NearGrid(parts(tmp_path, 3)), Events()
    status = Status("server", (), {})
    with handling(lambda event, facts: events.append((event, facts))), handling(status.on_event):
        run = grid.serve(make_deployable(inputs), tmp_path / "run")
    json.dumps(events, allow_nan=False)
    orders = Counter((facts["kind"], "site" in facts) for event, facts in events if event == "order")
    each = {"hello": 6, "train": 6, "evaluate": 3 * len(list(run.metrics("evaluation")))}
    assert orders == {(kind, at): n for kind, n in each.items() for at in (True, False)}
    sent, received = (
        [
            (facts["run"], facts["round"], facts["agreement"], facts["digest"])
            for event, facts in events
            if event == "order" and facts["kind"] == "train" and ("site" in facts) is by_server
        ]
        for by_server in (True, False)
    )
    assert sent == received
    rounds = [facts for event, facts in events if event == "round"]
    assert [facts["answered"] for facts in rounds] == [["site-0", "site-1", "site-2"]] * 2
    assert rounds[0]["digest"] == sent[-1][-1] != sent[0][-1]
    assert sum(event == "update" for event, _ in events) == 6
    assert [facts["accuracy"] for event, facts in events if event == "evaluation" and "sites" in facts] == [
        record["accuracy"] for record in run.metrics("evaluation")
    ]
    digest = next(facts["digest"] for event, facts in events if event == "configuration")
    assert {facts[2] for facts in sent} == {digest}
    shown = status.as_dict()
    assert (shown["round"], shown["rounds"], shown["done"], shown["method"]) == (2, 2, 2, "fedotp")
    assert [(peer["connected"], peer["updates"]) for peer in shown["peers"]] == [(True, 2)] * 3
    assert [loss for _, loss in shown["loss"]] == [record["loss"] for record in run.metrics("round")]
    assert shown["accuracy"][-1] == (2, list(run.metrics("evaluation"))[-1]["accuracy"])


def test_start_and_stop() -> None:
    events = Events()
    handler = handling(lambda event, facts: events.append((event, facts)))
    with handler, pytest.raises(ValueError, match="wrong"), recording_life("site", name="north"):
        raise ValueError("wrong\nline")
    assert [event for event, _ in events] == ["start", "stop"]
    assert events[0][1]["name"] == "north"
    assert events[1][1] == {"reason": "wrong line"}
