"""The prompts a run has learned, from its directory and the backbone; the data are not needed."""

from functools import cached_property

from torch import Tensor

from fedotp.clip import CLIP
from fedotp.methods import Kind, Parameters, Task
from fedotp.runs import (
    RunDirectory,
    deployed_parameters,
    find_device,
    kept_by,
    load_backbone,
    make_task,
    require_same,
    stored_parameters,
)


class LearnedPrompts:
    """The prompts of a run, before fine-tuning if its method does that; on the device of the backbone."""

    def __init__(self, run: RunDirectory) -> None:
        """Load the backbone and read the run's parameters."""
        self.run = run
        self.stored = stored_parameters(run)
        manifest = run.manifest
        self.task: Task = make_task(run.config, backbone_of(run), manifest["data"]["classes"], manifest["template"])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The clients that have learned something of their own which is kept here."""
        return tuple(self.run.manifest["clients"][number] for number in self.stored.clients)

    def common(self) -> list[Tensor]:
        """The contexts (s, d), or (K, s, d), of the prompts that are the same for all clients."""
        untrained = self.run.config.method.private(self.task)
        return [context for kind, context in self._prompts(self._params(untrained, None)) if kind == Kind.GLOBAL]

    def of(self, client: str) -> list[tuple[Kind, Tensor]]:
        """Kinds and contexts (s, d), or (K, s, d), of what is a client's own, one of `names`."""
        number = self.run.manifest["clients"].index(client)
        private = kept_by(self.stored, self.run.config.method, self.task, number)
        prompts = self._prompts(self._params(private, number))
        return [(kind, context) for kind, context in prompts if kind not in (Kind.GLOBAL, Kind.OTHERS)]

    def _params(self, private: Parameters, number: int | None) -> Parameters:
        return deployed_parameters(self.stored, self.run.config.method, self.task, private, number)

    def _prompts(self, params: Parameters) -> list[tuple[Kind, Tensor]]:
        prompts = self.run.config.method.prompts(self.task, params)
        return [(kind, each) for kind, context in prompts if context is not None for each in context[0]]


def backbone_of(run: RunDirectory) -> CLIP:
    """The backbone a run began with."""
    clip = load_backbone(run.config.backbone.source, find_device(run.config.compute.device))
    require_same(run, "backbone", run.config.backbone.name, clip.digest)
    return clip
