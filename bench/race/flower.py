"""Flower's simulation engine: a `ClientApp` and `FedAvg`, with a worker process for each thread of the race.

`FedAvg` draws nodes itself; here it is given the race's clients. A private prompt stays in the state of its node.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bench.race.loop import train
from bench.race.work import After, PromptModel, Work

client_app = ClientApp()


@cache
def _model(**spec: Any) -> PromptModel:
    torch.set_num_threads(1)
    return PromptModel(Work(**spec))


@client_app.train()
def train_client(message: Message, context: Context) -> Message:
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    spec = {name: value for name, value in config.items() if name in Work.__dataclass_fields__}
    model, client, round_ = _model(**spec), int(config["client"]), int(config["server-round"]) - 1  # type: ignore[arg-type]
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    state: dict[str, Any] = arrays.to_torch_state_dict()
    if model.private is not None:
        kept = context.state.array_records.get("private")
        state["private"] = kept.to_torch_state_dict()["private"] if kept else model.work.initial[1:]
    model.load_state_dict(state)
    train(model, model.work, round_, client)
    state = model.state_dict()
    if "private" in state:
        context.state["private"] = ArrayRecord({"private": state.pop("private")})
    metrics = MetricRecord({"num-examples": model.work.images})
    return Message(RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)


class GivenClients(FedAvg):
    """FedAvg with given clients: client i is the node with the i-th smallest number."""

    def __init__(self, work: Work) -> None:
        super().__init__(min_available_nodes=work.clients, fraction_evaluate=0.0)
        self.work = work

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        while len(nodes := sorted(grid.get_node_ids())) < self.work.clients:
            time.sleep(0.1)  # not all nodes are registered yet
        for client in self.work.clients_of(server_round - 1):
            given = ConfigRecord({**asdict(self.work), "client": client, "server-round": server_round})
            yield Message(RecordDict({"arrays": arrays, "config": given}), nodes[client], "train")


def run(work: Work, after: After) -> None:
    from flwr.simulation import run_simulation

    os.environ["OMP_NUM_THREADS"] = "1"  # of each worker
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        shared = ArrayRecord({"shared": PromptModel(work).shared.detach()})
        GivenClients(work).start(grid, shared, work.rounds, evaluate_fn=lambda _, arrays: report(arrays))

    def report(arrays: ArrayRecord) -> None:
        after(arrays.to_torch_state_dict()["shared"])

    resources = {"num_cpus": 1, "num_gpus": 1 / work.threads if torch.cuda.is_available() else 0.0}
    backend = {"init_args": {"num_cpus": work.threads}, "client_resources": resources}
    run_simulation(server_app, client_app, work.clients, backend_config=backend)  # type: ignore[arg-type]
