"""Repetition of the aggregations of a run from their recorded inputs, with the server's own code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch

from fedotp._files import read_regular
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
    """The result: number of aggregations, errors, digests of the optimizer's states, and of what was sent."""

    n: int = 0
    wrong: list[str] = field(default_factory=list)
    steps: dict[int, str] = field(default_factory=dict)
    sent: dict[tuple[str, int], str] = field(default_factory=dict)

    def was_sent(self, site: str, round_: int, digest: str) -> bool:
        """True unless a site was sent other parameters after a round."""
        return self.sent.get((site, round_), digest) == digest


def read_inputs(path: Path) -> dict[str, Parameters]:
    """Read the inputs of an aggregation: updates by the sites' numbers, "sum" or "release"."""
    inputs: dict[str, Parameters] = {}
    for key, value in safetensors.torch.load(read_regular(path, MOST_BYTES)).items():
        source, _, name = key.partition(".")
        inputs.setdefault(source, {})[name] = value
    return inputs


def repeat(directory: RunDirectory, rounds: Sequence[Recorded], initial: str) -> Repeated:
    """Repeat `rounds`; `initial` is the digest of the initial parameters. Stop at the first error."""
    config, manifest = directory.config, directory.manifest
    deployment, n_sites, done = manifest["deployment"], manifest["deployment"]["sites"], Repeated()
    clip = load_backbone(config.backbone.source, config.compute.device)
    options = ServerSettings(**deployment["settings"])
    agreement = agreement_of(config, deployment["run"], tuple(manifest["data"]["classes"]), options)
    if rounds and agreement.digest != rounds[-1].start["agreement"]:
        done.wrong.append("config.toml: with manifest.json it gives another agreement than the one that sites signed")
        return done
    task = make_task(config, clip, agreement.classes, agreement.template)
    members = rounds[-1].start["members"] if rounds else n_sites
    server = Server(config.method, task, config.settings.of(config.method), n_sites, members)
    server.params = {name: value.cpu() for name, value in server.params.items()}
    if digest_of(server.params) != initial:
        done.wrong.append("round 0: the initial parameters are not those of config.toml")
        return done
    payloads = Payloads(config.method, task, config.seed, n_sites)
    for recorded in rounds:
        for site, each in recorded.content["sites"].items():
            done.sent[site, recorded.number - 1] = digest_of(payloads.sent(each["number"], server.params))
            if each["order"] != done.sent[site, recorded.number - 1]:
                done.wrong.append(f"round {recorded.number}, site {site}: it was sent other parameters")
        done.wrong += [f"round {recorded.number}{why}" for why in _aggregate(recorded, directory, server, payloads)]
        if not done.wrong and digest_of(server.params) != recorded.content["params"]:
            done.wrong.append(f"round {recorded.number}: its aggregation gives other parameters than {recorded.where}")
        if done.wrong:
            return done
        done.n += 1
        done.steps[recorded.number] = digest_of(server.step.state)
        for site, each in recorded.content["sites"].items():
            done.sent[site, recorded.number] = digest_of(payloads.sent(each["number"], server.params))
    return done


def _aggregate(recorded: Recorded, directory: RunDirectory, server: Server, payloads: Payloads) -> Iterator[str]:
    """Repeat one aggregation; yield errors."""
    content, settings = recorded.content, directory.config.settings
    sites = content["sites"]
    if not content["inputs"]:
        if server.params and len(sites) >= settings.federation.min_clients:
            yield ": its inputs are missing"
        return
    inputs = read_inputs(Transcript.inputs_file(directory.path, recorded.number))
    is_secure, is_private = directory.manifest["deployment"]["settings"]["secure"], settings.privacy.unit == "site"
    source = "sum" if is_secure else "release" if is_private else ""
    if source:
        weight = sum(each["images"] for each in sites.values()) if is_secure else 0
        server.accept_average(inputs[source], inputs[source], weight)
        return
    start, agreed = recorded.start, content["agreed"]
    most = most_images(agreed.values(), start["max_times"], start["max_images"])
    updates = {}
    for site, each in sites.items():
        number, prompts = each["number"], inputs.get(str(each["number"]), {})
        weight = min(each["images"], agreed[site], most)
        if digest_of(prompts) != each["update"]:
            yield f", site {site}: its update is not the one that it signed"
        elif each["weight"] != weight:
            yield f", site {site}: its weight is {each['weight']}, must be {weight}"
        else:
            unchanged = payloads.untrained(number, recorded.number - 1, server.params)
            updates[number] = Update(weight, prompts, unchanged, length(prompts, unchanged))
    shorten(updates, start["max_times"])
    chosen = server.accept(stacked(updates), recorded.number - 1).chosen
    if content.get("averaged") != (None if chosen is None else chosen.tolist()):
        yield ": the robust rule chooses other updates"
