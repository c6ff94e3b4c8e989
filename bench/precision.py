"""What precision does to accuracy: the demo's federation, paired over seeds.

FedOTP and PromptFL on the backbone and the images that come with fedotp, `ROUNDS` rounds, `SEEDS` seeds that draw the
prompts, the clients' classes and the order of images. Every seed is run in float32 and in each other precision; a
figure is the mean over seeds of the difference to float32, in points of mean test accuracy over clients, with a 95 %
interval (Student's t). Beside it: how many predictions differ, which tells rounding that moves accuracy from rounding
that only swaps errors, and the time against float32's.

"float64" is what float32 itself is worth; "tokens in bfloat16" is `data.precision`, the image tower's.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass

import numpy as np

from fedotp.config import Config, load_config
from fedotp.federation import Simulator
from fedotp.runs.one import prepare

SETTINGS = (("fedotp", 0.1), ("promptfl", 0.1), ("promptfl", 0.01))  # 0.1 is the demo's learning rate
CHANGES = {
    "float32": (),
    "bfloat16": ("compute.precision=bfloat16",),
    "float64": ("compute.precision=float64",),
    "tokens in bfloat16": ("data.precision=bfloat16",),
}
SEEDS, ROUNDS = 10, 5


@dataclass(frozen=True)
class Result:
    """Mean accuracy over clients, in points; predictions by client and row; seconds per round, evaluation included."""

    accuracy: float
    predicted: np.ndarray
    seconds: float


def cannot_run() -> str | None:
    try:
        import scipy  # noqa: F401
    except ImportError:
        return "it needs scipy"
    return None


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as store:
        for method, lr in SETTINGS:
            results: dict[str, list[Result]] = {name: [] for name in CHANGES}
            for seed in range(SEEDS):  # precisions take turns, so that a busy moment hits all of them
                for name, changes in CHANGES.items():
                    draws = (f"seed={seed}", f"partition.seed={seed}", f"data.store={store}")
                    chosen = (f"method.name={method}", f"optimizer.lr={lr}", *changes)
                    results[name].append(trained(load_config("demo").override([*draws, *chosen])))
            plain = results.pop("float32")
            title = f"{method}, lr {lr}"
            figures[f"{title}: float32, accuracy, %"] = statistics.mean(one.accuracy for one in plain)
            for name, others in results.items():
                figures |= compared(f"{title}: {name}", others, plain)
    return figures


def trained(config: Config) -> Result:
    """The demo, run in memory."""
    prepared = prepare(config)
    simulator = Simulator(config.method, prepared.task, prepared.data, config.settings)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        simulator.run_round()
    evaluation, predictions = simulator.evaluate()
    seconds = (time.perf_counter() - start) / ROUNDS
    order = np.lexsort((predictions.row, predictions.client))
    return Result(100 * evaluation.mean, predictions.predicted[order], seconds)


def compared(title: str, others: list[Result], plain: list[Result]) -> dict[str, float]:
    """The paired difference with its interval, predictions that differ, and the ratio of times."""
    from scipy import stats

    pairs = list(zip(others, plain, strict=True))
    differences = [other.accuracy - one.accuracy for other, one in pairs]
    half = stats.t.ppf(0.975, len(pairs) - 1) * statistics.stdev(differences) / len(pairs) ** 0.5
    changed = [100 * float((other.predicted != one.predicted).mean()) for other, one in pairs]
    return {
        f"{title} - float32, points": statistics.mean(differences),
        f"{title} - float32, +- (95 %)": half,
        f"{title}: predictions that differ from float32's, %": statistics.mean(changed),
        f"{title}: time / float32's": statistics.median(other.seconds / one.seconds for other, one in pairs),
    }
