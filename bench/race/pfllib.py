"""PFLlib's training loop, restated for prompts.

Clients are objects, each with a copy of the model; the server sends its parameters to all of them, trains the sampled
ones in turn with a `DataLoader` each, and averages their models by weighted sums. Momentum and the order of images are
those of the race. The frozen towers are not part of the model: copied for 1,000 clients they would take 49 GB.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.race.work import SEED, After, PromptModel, Work
from fedotp.federation import draws


class Client:
    def __init__(self, number: int, work: Work, model: PromptModel) -> None:
        self.number, self.work, self.epochs = number, work, work.epochs
        self.model = copy.deepcopy(model)
        self.train_samples = work.images

    def load_train_data(self) -> TensorDataset:
        return TensorDataset(*self.work.read(torch.from_numpy(self.work.rows(self.number))))

    def train(self, round_: int) -> None:
        settings = self.work.optimizer
        optimizer = torch.optim.SGD(
            self.model.parameters(), settings.rate, momentum=settings.momentum, weight_decay=settings.weight_decay
        )
        self.model.train()
        data, draw = self.load_train_data(), draws(SEED, "batches", round_, self.number)
        for _ in range(self.epochs):
            order = draw.random(self.train_samples).argsort(kind="stable").tolist()
            for x, y in DataLoader(data, self.work.batch, sampler=order):
                loss = self.model.loss(x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def set_parameters(self, model: nn.Module) -> None:
        """Copy the global parameters; FedOTP's private prompt stays."""
        for (name, new), old in zip(model.named_parameters(), self.model.parameters(), strict=True):
            if name != "private":
                old.data = new.data.clone()


class Server:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.global_model = PromptModel(work)
        self.clients = [Client(i, work, self.global_model) for i in range(work.clients)]

    def train(self, after: After) -> None:
        after(self.global_model.shared)
        for round_ in range(self.work.rounds):
            self.selected_clients = [self.clients[i] for i in self.work.clients_of(round_)]
            self.send_models()
            for client in self.selected_clients:
                client.train(round_)
            self.receive_models()
            self.aggregate_parameters()
            after(self.global_model.shared)

    def send_models(self) -> None:
        for client in self.clients:
            client.set_parameters(self.global_model)

    def receive_models(self) -> None:
        total = sum(client.train_samples for client in self.selected_clients)
        self.uploaded_weights = [client.train_samples / total for client in self.selected_clients]
        self.uploaded_models = [client.model for client in self.selected_clients]

    def aggregate_parameters(self) -> None:
        self.global_model = copy.deepcopy(self.uploaded_models[0])
        for param in self.global_model.parameters():
            param.data.zero_()
        for weight, model in zip(self.uploaded_weights, self.uploaded_models, strict=True):
            for total, part in zip(self.global_model.parameters(), model.parameters(), strict=True):
                total.data += part.data.clone() * weight


def run(work: Work, after: After) -> None:
    Server(work).train(after)
