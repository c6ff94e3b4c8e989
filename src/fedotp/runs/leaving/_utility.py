"""What a federation is worth: one number, on the same test images whoever took part."""

from typing import Literal, get_args

import numpy as np

from fedotp.errors import FedotpError, listed
from fedotp.federation import Predictions, Simulator, evaluate_predictions, load_checkpoint
from fedotp.methods import Method
from fedotp.runs._directory import RunDirectory
from fedotp.runs._prepare import Prepared
from fedotp.runs._run import make_simulator

Utility = Literal["global", "personal"]
UTILITIES: tuple[Utility, ...] = get_args(Utility)


def choose_utility(asked: str | None, method: Method) -> Utility:
    """What a run is measured by: as `asked`, or by what the clients share where that predicts by itself."""
    if asked is None:
        return "personal" if method.global_part is None else "global"
    if asked not in UTILITIES:
        raise FedotpError(f"--of {asked}: must be {listed(UTILITIES)}")
    if asked == "global" and method.global_part is None:
        raise FedotpError(f"--of global: {method.title} has no global part that predicts by itself; give --of personal")
    return asked


class Measure:
    """Measures runs of the same federation with other members, on the test images of all its `players`.

    "global": what the server has learned predicts for everyone. "personal": each member predicts with its own
    classifier, and everyone else with what somebody new would be sent. Both are means of accuracy over the players
    that have test images, each counting once.
    """

    def __init__(self, prepared: Prepared, of: Utility, players: list[int]) -> None:
        """`prepared` is the federation with everybody, where nobody is held out or absent but who plays no part."""
        self._prepared = prepared
        self._of = of
        self._players = players

    def nobody(self) -> float:
        """Before anybody has trained."""
        prepared = self._prepared
        config = prepared.config
        untrained = Simulator(config.method, prepared.task, prepared.data, config.settings, novel=prepared.novel)
        return self._measure(untrained, frozenset())

    def of_run(self, run: RunDirectory, members: frozenset[int]) -> float:
        """What the complete `run` of `members` is worth."""
        simulator = make_simulator(self._prepared, run)
        try:
            load_checkpoint(run.checkpoint, simulator)
            return self._measure(simulator, members)
        finally:
            simulator.kept.close()

    def _measure(self, simulator: Simulator, members: frozenset[int]) -> float:
        if self._of == "global":
            views = {(view.view, view.model): view for view in simulator.see()}
            return views["personal", "global"].evaluation.mean
        inside = np.array(sorted(members), np.int64)
        outside = np.array([i for i in self._players if i not in members], np.int64)
        lines = [simulator.predict(inside)] if len(inside) else []
        lines += [simulator.predict_new(outside)] if len(outside) else []
        predictions = Predictions.join(lines)
        return evaluate_predictions(predictions, len(simulator.task.classes), simulator.domains).mean
