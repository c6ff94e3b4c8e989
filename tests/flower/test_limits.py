"""What one site can do to the average: as much as was agreed on, and not ten times more than the others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from near_sites import NearGrid, answered, changed, interrupted, make_deployable, parts, prompt_in

from fedotp.federation import Checkpoint
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._updates import furthest, median, most_images
from fedotp.report.page._gather import gather
from fedotp.runs.directory import RunDirectory

IMAGES = {"site-0": 11, "site-1": 11, "site-2": 6}  # of the toy federation
ENDLESS = 10**9


def claiming(n_images: int, train: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> Callable[..., Message]:
    """A site that speaks of `n_images`, at hello and after."""

    def meddle(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "query" and "train-images" in reply.content["config"]:
            reply.content["config"]["train-images"] = n_images
        if message.metadata.message_type == "train":
            reply.content["metrics"]["num-examples"] = n_images
            received, update = prompt_in(message), prompt_in(reply)
            reply.content["arrays"] = ArrayRecord({"shared": Array(np.float32(received + train(update - received)))})
        return reply

    return meddle


def require_average(run: RunDirectory, grid: NearGrid, round_: int, weights: list[int]) -> None:
    """The server's prompt is the weighted average of the updates of a round."""
    updates = [prompt_in(reply) for _, reply in grid.exchanged("train", round_)]
    expected = torch.from_numpy(np.average(updates, axis=0, weights=weights)).float()
    torch.testing.assert_close(Checkpoint.read(run.checkpoint).server["shared"], expected, atol=1e-6, rtol=0)


def test_a_site_that_claims_endless_images_does_not_replace_the_prompt(
    inputs: Path, tmp_path: Path, lines: Any
) -> None:
    grid = NearGrid(parts(tmp_path, 3), meddle={102: claiming(ENDLESS)})
    run = grid.serve(make_deployable(inputs, federation={"rounds": 1}), tmp_path / "run")
    require_average(run, grid, 1, [11, 11, 22])
    assert run.summary["weights"] == {"site-0": 11, "site-1": 11, "site-2": 22}
    assert run.summary["capped"] == {"site-2": ENDLESS}
    assert "site-2 reports 1000000000 training images; its weight is limited to 22 (--max-times 10)" in lines.text
    warning = "Site site-2 reported 1,000,000,000 training images; its weight was limited to 22."
    assert gather(run)["warnings"] == [warning]


def test_the_administrator_says_how_many_images_count(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 3), meddle={102: claiming(ENDLESS)})
    options = ServerSettings(round_timeout=0.5, max_images=10)
    run = grid.serve(make_deployable(inputs, federation={"rounds": 1}), tmp_path / "run", options)
    assert run.summary["weights"] == dict.fromkeys(IMAGES, 10)
    assert run.summary["capped"] == {"site-0": 11, "site-1": 11, "site-2": ENDLESS}


def test_no_site_counts_with_more_than_all_others_together() -> None:
    assert most_images([11, 11, ENDLESS], 10, 0) == 22
    assert most_images([5, 40, 50], 10, 0) == 45
    assert most_images([12413, 3954, 3363, 2259, 819, 439], 10, 0) == 10834  # Fed-ISIC2019: 50 % instead of 53 %
    assert most_images([30, ENDLESS], 10, 0) == 300  # of two, neither is the majority
    assert most_images([11, 11, ENDLESS], 10, ENDLESS) == ENDLESS  # the administrator knows


def test_the_median_is_one_that_a_single_site_cannot_raise() -> None:
    assert median([]) == 0
    assert median([7]) == 7
    assert median([3, ENDLESS]) == 3
    assert median([3, 5, ENDLESS]) == 5
    assert most_images([100, ENDLESS, 0], 10, 0) == 1000
    assert furthest([0.1, 0.2, 99], 1.5, 10) == 2
    assert furthest([0.01, 0.02, 99], 1.5, 10) == 1.5
    assert furthest([0.01, 0.02, 99], 0.2, 10) == 1  # a prompt may be almost 0


@pytest.mark.parametrize("allowed", [False, True])
def test_a_site_that_comes_back_with_more_images_counts_as_agreed_unless_allowed(
    allowed: bool, inputs: Path, tmp_path: Path, lines: Any
) -> None:
    grid = NearGrid(interrupted(make_deployable(inputs), tmp_path).nodes, meddle={102: claiming(20)})
    options = ServerSettings(round_timeout=0.5, allow_new_counts=allowed)
    run = grid.resume(tmp_path / "run", options)
    weights = {**IMAGES, "site-2": 20 if allowed else 6}
    require_average(run, grid, 2, list(weights.values()))
    assert run.summary["weights"] == weights
    assert RunDirectory(run.path).manifest["deployment"]["train_images"] == weights
    assert ("its weight stays limited to the 6 it reported first" in lines.text) is not allowed


def test_a_site_restarted_during_a_run_cannot_change_its_weight(inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid = NearGrid(parts(tmp_path, 3))

    def restart(_reply: RecordDict) -> None:
        grid.came[102], grid.meddle[102] = "again", claiming(ENDLESS)

    grid.meddle[102] = changed("train", restart)
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]
    assert run.summary["weights"] == IMAGES
    assert "site site-2 reports 1000000000 training images" in lines.text


def test_an_update_much_longer_than_the_others_is_shortened(inputs: Path, tmp_path: Path, lines: Any) -> None:
    far = claiming(IMAGES["site-2"], lambda moved: 50 * moved / np.linalg.norm(moved))
    grid = NearGrid(parts(tmp_path, 3), meddle={102: far})
    run = grid.serve(make_deployable(inputs, federation={"rounds": 1}), tmp_path / "run")
    start = prompt_in(grid.exchanged("train")[0][0])
    moved = [prompt_in(reply) - start for _, reply in grid.exchanged("train")]
    moved[2] *= 50 / np.linalg.norm(moved[2])
    most = max(1.0, np.linalg.norm(start), 10 * sorted(np.linalg.norm(m) for m in moved)[1])
    moved[2] *= most / 50
    expected = start + np.average(moved, axis=0, weights=list(IMAGES.values()))
    torch.testing.assert_close(
        Checkpoint.read(run.checkpoint).server["shared"], torch.from_numpy(expected).float(), atol=1e-5, rtol=0
    )
    (record,) = run.metrics("round")
    assert list(record["shortened"]) == ["site-2"]
    assert run.summary["shortened"] == {"site-2": 1}
    assert "round 1, site site-2: update of norm 50 shortened to" in lines.text
    assert gather(run)["warnings"] == ["1 update of site site-2 was clipped: much larger than those of other sites."]
