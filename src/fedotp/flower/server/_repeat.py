"""Repetition of the aggregations of a run from their recorded inputs, with the server's own code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch

from fedotp._files import read_file
from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.federation.server import Server
from fedotp.flower._wire import digest_of
from fedotp.flower.records import Statement, Transcript
from fedotp.flower.server._requests import Payloads
from fedotp.flower.server._serve import agreement_of
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._updates import Update, most_images, shorten, stacked
from fedotp.methods import Parameters
from fedotp.privacy import length
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import load_backbone, make_task

MOST_BYTES = 4 << 30  # of a file of inputs
MALFORMED = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that fields with other types, or missing fields, cause."""


@dataclass(frozen=True)
class Recorded:
    """A round of a transcript: its place, the last start of the server before it, and its content."""

    where: str
    start: Mapping[str, Any]
    content: Mapping[str, Any]

    @property
    def number(self) -> int:
        """The round, counted from 1."""
        return int(self.content["round"])

    def statement(self, site: str) -> Statement:
        """Return the statement of a site in this round."""
        each = self.content["sites"][site]
        which = self.start["run"], self.number, self.start["agreement"]
        return Statement(*which, site, each["order"], each["update"], each["images"])


@dataclass
class Repeated:
    """The result: number of aggregations, errors and notes, digests of the optimizer's states, and of what was sent."""

    n: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: dict[int, str] = field(default_factory=dict)
    sent: dict[tuple[str, int], str] = field(default_factory=dict)

    def send(self, numbers: Mapping[str, int], round_: int, payloads: Payloads, server: Server) -> None:
        """Compute what all sites, of these `numbers`, were sent after a round; "" stands for an unknown site."""
        for site, number in numbers.items():
            self.sent[site, round_] = digest_of(payloads.sent(number, server.params))

    def was_sent(self, site: str, round_: int, digest: str) -> bool:
        """True unless a site was sent other parameters after a round."""
        return self.sent.get((site, round_), self.sent.get(("", round_), digest)) == digest


def read_inputs(path: Path) -> dict[str, Parameters]:
    """Read the inputs of an aggregation: updates by the sites' numbers, "sum" or "release"."""
    inputs: dict[str, Parameters] = {}
    for key, value in safetensors.torch.load(read_file(path, MOST_BYTES)).items():
        source, _, name = key.partition(".")
        inputs.setdefault(source, {})[name] = value
    return inputs


def repeat(directory: RunDirectory, every: Sequence[Recorded], initial: str, *, with_inputs: bool = True) -> Repeated:
    """Repeat all rounds, if there are inputs; `initial` is the digest of the initial parameters. Stop at an error."""
    config, manifest = directory.config, directory.manifest
    deployment, n_sites, done = manifest["deployment"], manifest["deployment"]["sites"], Repeated()
    clip = load_backbone(config.backbone.source, config.compute.device)
    options = ServerSettings(**deployment["settings"])
    agreement = agreement_of(config, deployment["run"], tuple(manifest["data"]["classes"]), options)
    if every and agreement.digest != every[-1].start["agreement"]:
        done.wrong.append("config.toml: with manifest.json it gives another agreement than the one that sites signed")
        return done
    if other := [str(each.number) for each in every if each.start["agreement"] != agreement.digest]:
        done.notes.append(f"sites signed another agreement than that of config.toml in rounds {', '.join(other)}")
    if len(every) > config.federation.rounds:
        done.wrong.append(f"config.toml: it has {config.federation.rounds} rounds, fewer than the transcript")
        return done
    rounds = every if with_inputs else []
    task = make_task(config, clip, agreement.classes, agreement.template)
    members = rounds[-1].start["members"] if rounds else n_sites
    server = Server(config.method, task, config.settings.of(config.method), n_sites, members)
    server.params = {name: value.cpu() for name, value in server.params.items()}
    if digest_of(server.params) != initial:
        done.wrong.append("round 0: the initial parameters are not those of config.toml")
        return done
    payloads = Payloads(config.method, task, config.seed, n_sites)
    numbers = {"": n_sites} | {name: number for number, name in enumerate(manifest["clients"])}
    numbers |= {site: each["number"] for recorded in rounds for site, each in recorded.content["sites"].items()}
    done.send(numbers, 0, payloads, server)
    for recorded in rounds:
        for site, each in recorded.content["sites"].items():
            if each["order"] != done.sent[site, recorded.number - 1]:
                done.wrong.append(f"round {recorded.number}, site {site}: it was sent other parameters")
        try:
            done.wrong += [f"round {recorded.number}{why}" for why in _aggregate(recorded, directory, server, payloads)]
        except (FedotpError, safetensors.SafetensorError, *MALFORMED) as error:
            why = f"{type(error).__name__} {one_line(error)}"
            done.wrong.append(f"round {recorded.number}: its inputs are not those of an aggregation: {why}")
        if not done.wrong and digest_of(server.params) != recorded.content["params"]:
            done.wrong.append(f"round {recorded.number}: its aggregation gives other parameters than {recorded.where}")
        if done.wrong:
            return done
        done.n += 1
        done.steps[recorded.number] = digest_of(server.step.state)
        done.send(numbers, recorded.number, payloads, server)
    return done


def _aggregate(recorded: Recorded, directory: RunDirectory, server: Server, payloads: Payloads) -> Iterator[str]:
    """Repeat one aggregation; yield errors."""
    content, settings, start = recorded.content, directory.config.settings, recorded.start
    sites, agreed = content["sites"], content["agreed"]
    is_secure, is_private = directory.manifest["deployment"]["settings"]["secure"], settings.privacy.unit == "site"
    limits = ServerSettings(max_times=start["max_times"], max_images=start["max_images"])  # checks their ranges
    counts = [*agreed.values(), *(each["weight"] for each in sites.values())]
    if not all(type(count) is int and count > 0 for count in counts):
        yield ": numbers of images and weights must be positive integers"
    most = most_images(agreed.values(), limits.max_times, limits.max_images)
    for site, each in sites.items():
        weight = each["images"] if is_secure else min(each["images"], agreed[site], most)
        if each["weight"] != weight:
            yield f", site {site}: its weight is {each['weight']}, must be {weight}"
    weight = sum(each["images"] for each in sites.values()) if is_secure and content["inputs"] else 0
    if content["weight"] != weight:
        yield f": the weight of its sum is {content['weight']}, must be {weight}"
    if not content["inputs"]:
        if server.params and len(sites) >= settings.federation.min_clients:
            yield ": its inputs are missing"
        return
    inputs = read_inputs(Transcript.inputs_file(directory.path, recorded.number))
    source = "sum" if is_secure else "release" if is_private else ""
    if source:
        if len(sites) < settings.federation.min_clients:
            yield ": it has fewer statements than federation.min_clients"
        server.accept_average(inputs[source], inputs[source], weight)
        return
    updates = {}
    for site, each in sites.items():
        number, prompts = each["number"], inputs.get(str(each["number"]), {})
        if digest_of(prompts) != each["update"]:
            yield f", site {site}: its update is not the one that it signed"
        else:
            unchanged = payloads.untrained(number, recorded.number - 1, server.params)
            updates[number] = Update(each["weight"], prompts, unchanged, length(prompts, unchanged))
    shorten(updates, start["max_times"])
    chosen = server.accept(stacked(updates), recorded.number - 1).chosen
    if content.get("averaged") != (None if chosen is None else chosen.tolist()):
        yield ": the robust rule chooses other updates"
