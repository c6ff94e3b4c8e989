"""The server of a federation: one class for simulated clients, for real sites and for secure sums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedotp._values import show
from fedotp.errors import FedotpError, SettingError
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.federation.server._rule import Rule, Updates
from fedotp.federation.server._step import ServerStep
from fedotp.methods import IMAGES, Method, Parameters, Task

Release = Callable[[Parameters, Sequence[Parameters], int, int], Parameters]
"""Function that computes the private average of updates: server parameters, updates, expected number, round from 1."""


@dataclass(frozen=True, eq=False)
class Accepted:
    """Result of a round: `chosen` are the clients whose updates a robust rule chose, None under other rules.

    `why_not` is the reason why the shared parameters did not change; "" if they did.
    """

    chosen: Ints | None = None
    why_not: str = ""


class Server:
    """The shared parameters x of a federation and their updates.

    With u_i the parameters that client i of the round's clients C_t sends, and m_i its number of images,

        u_i   are replaced by the robust rule                                `Rule`
        x' =  sum_i m_i u_i / sum_i m_i    (unless the method overrides it)  Eq. 4, `Method.aggregate`
        x  =  the server step from x towards x'; x' itself by default        `ServerStep`

    With `privacy.unit = "site"`, x' is the private average instead. A secure sum returns x', but no u_i. If there are
    fewer than `federation.min_clients` answers, or too few updates for the rule, x does not change.

    `params` and the state of `step` are the complete state for a checkpoint.
    """

    def __init__(
        self,
        method: Method,
        task: Task,
        settings: Settings,
        n_clients: int,
        n_members: int,
        *,
        release: Release | None = None,
    ) -> None:
        """Create the server of `n_clients`, of which `n_members` have training images.

        `release` computes the private averages of `privacy.unit = "site"`.
        """
        self.method = method
        self.params = method.shared(task, n_clients)
        self.rule, self.step = Rule(settings.server), ServerStep(settings.server)
        self._task = task
        self._rounds = settings.of(method).federation
        self._n_members = n_members
        self._release = release
        if not self.rule.is_plain:
            self.require_average(f'server.rule = "{self.rule.settings.rule}": must be "average"')
            self.rule.require(self._rounds.n_sampled(n_members))
        if settings.privacy.unit == "site":
            if self._why_no_average:
                raise FedotpError(f'privacy.unit = "site": not supported for {method.title}, which has no average')
            if not self.rule.is_plain:
                right = '"average" with privacy.unit = "site", whose noise is for the sum of all updates'
                raise SettingError("server.rule", show(self.rule.settings.rule), right)

    @property
    def _why_no_average(self) -> str:
        """Reason why the method's server does not average; "" if it does."""
        if not self.params:
            return "has no shared parameters"
        if self.method.in_closed_form and not self.method.averages:
            return "needs the sums of each client"
        return "stores the parameters of each client" if self.method.knows_clients(self._task) else ""

    def require_average(self, key: str) -> None:
        """Raise an error for the setting `key` if the method's server does not average."""
        if why := self._why_no_average:
            raise FedotpError(f"{key}, as the server of {self.method.title} {why}")

    def send(self, clients: Tensor | None, n: int) -> Parameters:
        """Return the messages (n, ...) to `clients` (n,), or to n new clients (None)."""
        return self.method.send(self.params, clients, n)

    def accept(self, sent: Updates, round_: int) -> Accepted:
        """Apply the updates of a round, counted from 0, to the shared parameters."""
        n = len(sent.clients)
        if n < self._rounds.min_clients:
            return self._unchanged(f"{n} updates, fewer than {self._rounds.min_clients}")
        if not sent.params:
            return self._unchanged("no updates")
        if self._release is not None:
            # the step towards the private average is post-processing and spends no more privacy
            everyone = round_ == 0 and self._rounds.first_round == "all"
            expected = self._n_members if everyone else self._rounds.n_sampled(self._n_members)
            each = zip(*sent.params.values(), strict=True)
            updates = [dict(zip(sent.params, values, strict=True)) for values in each]
            self.accept_average(self._release(self.params, updates, expected, round_ + 1), sent.params)
            return Accepted()
        learned = sent.params
        if self._task.authors.half_precision:  # the clients' number format
            learned = {name: value.half() for name, value in learned.items()}
        averaged = self.rule(self.params, sent._replace(params=learned))
        if averaged is None:
            return self._unchanged(f"{n} updates are too few for server.rule = {self.rule.settings.rule!r}")
        self.accept_average(self.method.aggregate(self.params, *averaged), sent.params, int(averaged[2].sum()))
        return Accepted(self.rule.chosen_of(averaged))

    def accept_average(self, average: Parameters, sent: Parameters, n_examples: int = 0) -> None:
        """Step towards the `average` of the parameters `sent`; others do not change.

        `n_examples` is the number of examples in the average, 0 if unknown.
        """
        if IMAGES in self.params:
            average = {**average, IMAGES: self.params[IMAGES].new_tensor(n_examples)}
        average = {name: value.to(self.params.get(name, value).dtype) for name, value in average.items()}
        self.params = self.step(self.params, {**self.params, **average}, sent)

    def _unchanged(self, why: str) -> Accepted:
        return Accepted(self.rule.chosen_of(None), why)

    def load(self, params: Parameters) -> None:
        """Load values of the shared parameters, converted to this server's device and types."""
        self.params = {name: value.to(self.params[name]) for name, value in params.items()}
