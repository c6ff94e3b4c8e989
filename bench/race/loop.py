"""A plain PyTorch loop over the clients, as a user writes it without an engine."""

import torch
from torch import Tensor

from bench.race.work import After, PromptModel, Work


def run(work: Work, after: After) -> None:
    model = PromptModel(work)
    shared = model.shared.detach().clone()
    private: dict[int, Tensor] = {}
    after(shared)
    for round_ in range(work.rounds):
        clients = work.clients_of(round_)
        total = torch.zeros_like(shared)
        for client in clients:
            with torch.no_grad():
                model.shared.copy_(shared)
                if model.private is not None:
                    model.private.copy_(private.get(client, work.initial[1:]))
            train(model, work, round_, client)
            total += model.shared.detach()
            if model.private is not None:
                private[client] = model.private.detach().clone()
        shared = total / len(clients)  # clients have equally many images
        after(shared)


def train(model: PromptModel, work: Work, round_: int, client: int) -> None:
    settings = work.optimizer
    optimizer = torch.optim.SGD(
        model.parameters(), settings.rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    for images, labels in work.batches(round_, client):
        optimizer.zero_grad()
        model.loss(images, labels).backward()
        optimizer.step()
