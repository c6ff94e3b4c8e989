"""The accuracies with the class prior of a run, recomputed from probabilities and labels alone.

    python -m recipes.demo.prior runs/demo/promptfl,split=6,seed=0

Every site's classifier predicts the site's test images without the prior. The counts of its training images and Bayes'
rule give the rest, here in NumPy. The result is compared, site by site, with what the run's summary says.
"""

import json
import sys
from pathlib import Path

import numpy as np

import fedotp
from fedotp.data import load_dataset

SMOOTHING = 0.3


def main(folder: str) -> None:
    """Print both numbers, and end with status 1 if any site differs."""
    run = Path(folder)
    summary, partition = (json.loads((run / f"{name}.json").read_text()) for name in ("summary", "partition"))
    dataset = load_dataset("cifar10-mini")
    names = [client["name"] for client in summary["clients"]]
    found = []
    for client in (each for each in partition["clients"] if each["name"] in names):
        plain = fedotp.load(run, client=client["name"]).with_prior(0)
        p = plain.predict([dataset.test.image(row) for row in client["test"]]).probabilities
        counts = np.bincount(np.asarray(dataset.train.labels)[client["train"]], minlength=p.shape[1]) + SMOOTHING
        found.append(np.mean((p * counts / counts.sum()).argmax(1) == np.asarray(dataset.test.labels)[client["test"]]))
    said = np.array(summary["with_prior"]["clients"])
    differ = int((np.abs(np.array(found) - said) > 1e-12).sum())
    both = f"{100 * np.mean(found):.4f} recomputed, {100 * said.mean():.4f} in the summary"
    print(f"{run.name}: {both}, {differ} sites differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
