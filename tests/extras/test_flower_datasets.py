"""Partitions of Flower Datasets' own partitioners. `make test-extras`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedotp.data import load_dataset
from fedotp.data.partition import Partition, from_flower
from fedotp.errors import FedotpError
from fedotp.runs.one import resume, run
from runs.toy_run import make_config, make_inputs

WHY = "it is not installed here; `make test-extras` has it"
pytest.importorskip("datasets", reason=WHY)
partitioners: Any = pytest.importorskip("flwr_datasets.partitioner", reason=WHY)
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def all_of(dataset: Any) -> dict[str, Any]:
    shares = {"partition_by": "label", "alpha": 2.0, "min_partition_size": 2}
    return {
        "iid": partitioners.IidPartitioner(num_partitions=3),
        "dirichlet": partitioners.DirichletPartitioner(num_partitions=3, **shares),
        "by domain": partitioners.NaturalIdPartitioner(partition_by="domain"),
    }


@pytest.mark.parametrize("name", ["iid", "dirichlet", "by domain"])
def test_what_flower_divides_is_divided_so(inputs: Path, name: str, tmp_path: Path) -> None:
    dataset = load_dataset(str(inputs / "data"))
    partition = from_flower(dataset, all_of(dataset)[name])
    again = all_of(dataset)[name]
    import datasets

    domains = [dataset.domains[d] for d in dataset.train.domains]
    columns = {"row": list(range(len(domains))), "label": dataset.train.labels.tolist(), "domain": domains}
    again.dataset = datasets.Dataset.from_dict(columns)
    for n, client in enumerate(partition.clients):
        assert sorted(again.load_partition(n)["row"]) == client.train.tolist()
        assert set(dataset.test.labels[client.test]) <= set(dataset.train.labels[client.train])
    tests = np.concatenate([client.test for client in partition.clients])
    assert len(np.unique(tests)) == len(tests)
    assert sorted(tests) == list(range(len(dataset.test)))  # every class has a client here
    partition.save(tmp_path / "ours.json")
    assert Partition.load(tmp_path / "ours.json").digest == partition.digest
    if name == "by domain":
        assert {client.domain for client in partition.clients} == set(dataset.domains)


def test_a_run_with_it_and_going_on(inputs: Path, tmp_path: Path) -> None:
    dataset = load_dataset(str(inputs / "data"))
    partition = from_flower(dataset, partitioners.IidPartitioner(num_partitions=3))
    config = make_config(inputs, federation={"holdout_clients": 0})
    done = run(config, tmp_path / "run", partition=partition)
    assert done.partition.digest == partition.digest
    assert done.config.partition.scheme == "given"
    assert resume(tmp_path / "run").summary == done.summary


def test_what_does_not_divide_images_is_refused(inputs: Path) -> None:
    by_nothing = partitioners.NaturalIdPartitioner(partition_by="hospital")
    with pytest.raises(FedotpError, match="use the columns label or domain"):
        from_flower(load_dataset(str(inputs / "data")), by_nothing)
