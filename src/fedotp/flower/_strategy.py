"""A method's server step as a Flower strategy, so that Flower's own privacy wrappers can stand around it."""

from collections.abc import Callable, Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from fedotp.errors import FedotpError
from fedotp.flower import _messages as words
from fedotp.flower._records import to_record
from fedotp.flower._settings import ServerSettings
from fedotp.methods import Method, Parameters

Addressed = Callable[[ConfigRecord], Iterable[Message]]
"""Makes the messages of a round, one for each site that is asked, from what all of them are told."""


class PromptStrategy(FedAvg):
    """The round of a method: who is asked is decided before, by `ask`; the average is the method's own.

    `updates` holds what `aggregate_train` is to average: it is given the same answers again as Flower's messages,
    because a wrapper may have changed them.
    """

    def __init__(self, method: Method) -> None:
        """A strategy that has not asked anyone yet."""
        super().__init__(weighted_by_key=words.EXAMPLES, arrayrecord_key=words.ARRAYS, configrecord_key=words.CONFIG)
        self.method = method
        self.server: Parameters = {}
        self._addressed: Addressed = lambda _config: ()
        self._numbers: dict[int, int] = {}

    def ask(self, server: Parameters, addressed: Addressed, numbers: dict[int, int]) -> None:
        """Prepare a round: the server's parameters, the messages, and the numbers of the sites by node."""
        self.server, self._addressed, self._numbers = server, addressed, numbers

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the round."""
        return list(self._addressed(config))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The method's server step on answers that were found in order."""
        replies = sorted(replies, key=lambda reply: self._numbers[reply.metadata.src_node_id])
        if not replies:
            return None, None
        numbers = torch.tensor([self._numbers[reply.metadata.src_node_id] for reply in replies])
        weights = torch.tensor([_examples(reply) for reply in replies])
        records = [reply.content.array_records[words.ARRAYS] for reply in replies]
        uploads = {name: torch.stack([_tensor(record, name) for record in records]) for name in records[0]}
        return to_record(self.method.aggregate(self.server, numbers, uploads, weights)), None


class PlainAverage(PromptStrategy):
    """The same with Flower's own average, which its accountant of privacy insists on; all weights are equal then."""

    aggregate_train = FedAvg.aggregate_train


def _examples(reply: Message) -> int:
    return int(reply.content.metric_records[words.METRICS][words.EXAMPLES])  # type: ignore[arg-type]


def _tensor(record: ArrayRecord, name: str) -> torch.Tensor:
    return torch.from_numpy(record[name].numpy().copy())


def with_privacy(strategy: PromptStrategy, settings: ServerSettings, n_sites: int, n_releases: int) -> Strategy:
    """`strategy` inside the wrapper that `settings` ask for; `n_releases` averages were published before."""
    if settings.privacy == "none":
        return strategy
    if settings.privacy == "adaptive":
        return DifferentialPrivacyServerSideAdaptiveClipping(
            strategy, settings.noise, num_sampled_clients=n_sites, initial_clipping_norm=settings.clip
        )
    wrapper = {
        "server": DifferentialPrivacyServerSideFixedClipping,
        "client": DifferentialPrivacyClientSideFixedClipping,
    }[settings.privacy]
    if not settings.delta:
        return wrapper(strategy, settings.noise, settings.clip, n_sites)
    from flwr.supercore.privacy_accounting import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        SamplingMethod,
    )
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    account = PrivacyConfig(
        target_delta=settings.delta,
        population_size=n_sites,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
        max_epsilon=settings.max_epsilon or None,
    )
    try:
        accountant = RdpAccountant(account)
    except ImportError as error:
        raise FedotpError("accounting for privacy needs dp-accounting: pip install 'flwr[dp]'") from error
    if n_releases:
        accountant.compose(GaussianPrivacyEvent(settings.noise, n_sites, n_sites), n_releases)
    return wrapper(strategy, settings.noise, settings.clip, n_sites, accountant=accountant)
