"""`fedotp client --check`: what would stop this site, found before it joins a federation."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedotp
from fedotp._files import require_writable
from fedotp._text import counted
from fedotp.clip import CLIP
from fedotp.data import Dataset, Split, check_dataset, load_dataset
from fedotp.errors import FedotpError, listed
from fedotp.flower._agreement import Agreement
from fedotp.flower._defaults import quiet_flower
from fedotp.flower._findings import Asked, CautionError, Finding, UncheckedError, examine, needed
from fedotp.flower.keys import ExpiryWarnings, SiteKeys, digest_of_keys, key_facts, key_fingerprint
from fedotp.flower.link import ask_server
from fedotp.flower.site._app import stay_offline
from fedotp.flower.site._limits import require_bounded, require_memory, require_room
from fedotp.flower.site._policy import read_policy
from fedotp.flower.site._site_settings import SiteSettings
from fedotp.flower.site._state import Ledger
from fedotp.images import WINDOW
from fedotp.runs.one import class_numbers, load_backbone, make_task

log = logging.getLogger("fedotp.site")

_MOST_IMAGES = 400  # that are decoded; of more, a sample of both splits
_UNKNOWN = "the server's settings are unknown"


def check_site(settings: SiteSettings, server: str, policy: Path | None, policy_key: Path | None) -> Iterator[Finding]:
    """Check a site's set-up without joining; `settings` do not contain the policy yet."""
    quiet_flower(settings.state / "flower")  # the same variables as in a start
    stay_offline()
    check = _Check(settings, server)
    return examine(
        [
            ("keys", check.read_keys),
            ("connection", check.connection),
            ("clock", check.clock),
            ("version", check.version),
            ("images", check.images),
            ("groups", check.groups),
            ("classes", check.classes),
            ("backbone", check.backbone),
            ("memory, disk", check.resources),
            ("policy", lambda: check.policy(policy, policy_key)),
            ("secure sums", check.secure_sums),
        ]
    )


class _Check:
    """The checks of a site; each uses what those before it have found."""

    def __init__(self, settings: SiteSettings, server: str) -> None:
        self.settings, self.server = settings, server
        self.folder = Path(settings.keys) if settings.keys else None
        self.keys: SiteKeys | None = None
        self.asked: Asked | None = None
        self.agreement: Agreement | None = None
        self.dataset: Dataset | None = None
        self.clip: CLIP | None = None

    def read_keys(self) -> str:
        folder = needed(self.folder, "--insecure")
        keys = self.keys = SiteKeys.read(folder)
        if soon := list(ExpiryWarnings(log, keys.certificates).soon()):
            raise CautionError("; ".join(soon))
        return next(f"{what}, {remark}" for what, _, remark in key_facts(folder) if what == f"site {keys.name}")

    def connection(self) -> str:
        if self.folder is not None:
            needed(self.keys, "requires the keys")
        self.asked = ask_server(self.server, self.keys)
        if self.asked.refused:
            raise FedotpError(f"{self.server}: {self.asked.refused}")
        return f"{self.server} accepts {'this key, over TLS' if self.folder else 'any site (--insecure)'}"

    def clock(self) -> str:
        asked = needed(self.asked, "no connection")
        ahead = needed(asked.ahead, "the server's answer contains no time")
        text = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
        rule = (
            f"must be at most {asked.latest} s ahead and {-asked.earliest} s behind; synchronise both clocks with NTP"
        )
        if not asked.earliest < ahead < asked.latest:
            raise FedotpError(f"{text}: {rule}")
        if not asked.earliest < 2 * ahead < asked.latest:
            raise CautionError(f"{text}: {rule}")
        return text

    def version(self) -> str:
        asked, here = needed(self.asked, "no connection"), fedotp.__version__
        if asked.refused or not asked.agreement:
            raise UncheckedError("refused by the server" if asked.refused else "the server is still starting; repeat")
        text = f"fedotp {here} here, {asked.version} at the server"
        try:
            self.agreement = Agreement.read(asked.agreement)
        except FedotpError as error:
            raise FedotpError(f"{text}: {error}") from error
        if asked.version != here:
            raise CautionError(f"{text}: install the same version on both")
        return text

    def images(self) -> str:
        if not self.settings.data:
            raise UncheckedError("--part uses the server's data set")
        data = self.settings.local(self.agreement.config).data if self.agreement else None
        window = self.settings.window or (data.window if data else WINDOW)
        dataset = load_dataset(self.settings.data, test_split=data.test_split if data else "test")
        self.dataset = dataset
        report = check_dataset(
            replace(dataset, train=_sampled(dataset.train), test=_sampled(dataset.test)), window=window
        )
        n, hidden = report.n_images, len(report.clipped)
        n_train, n_test = len(dataset.train), len(dataset.test)
        which = "all" if n == n_train + n_test else f"{n:,} of"
        text = f"decoded {which} {n_train:,} training and {n_test:,} test images"
        if report.broken:
            first = report.broken[0]
            n_broken = counted(len(report.broken), "broken image")
            raise FedotpError(f"{text}; {n_broken}: {first.where} ({first.reason}); replace or remove")
        if 2 * hidden > n:
            raise FedotpError(f"the window {window} makes {hidden} of {n} images black or white; set another --window")
        also = {"black or white with this window": hidden, "nearly dark": len(report.dark)}
        also |= {"with two labels": len(report.contradictions), "in training and test": len(report.duplicates)}
        found = [*dataset.notes, *(f"{count} {what}" for what, count in also.items() if count)]
        if found:
            raise CautionError(f"{text}: {'; '.join(found)}; see `fedotp data check`")
        return text

    def groups(self) -> str:
        dataset = needed(self.dataset, "no images")
        if not dataset.groups:
            raise UncheckedError("give patients in the column group of a table, or separate them yourself")
        return f"{counted(len(dataset.groups), 'group')}, none in both training and test images"

    def classes(self) -> str:
        dataset, agreement = needed(self.dataset, "no images"), needed(self.agreement, _UNKNOWN)
        if not agreement.classes:
            raise UncheckedError(f"the server collects the sites' classes; here: {listed(dataset.classes)}")
        class_numbers(agreement.classes, dataset, "the federation")
        absent = [name for name in agreement.classes if name not in dataset.classes]
        without = f"; no images of {listed(absent)}" if absent else ""
        return (
            f"{len(dataset.classes)} of the federation's {counted(len(agreement.classes), 'class', 'classes')}{without}"
        )

    def backbone(self) -> str:
        agreement = needed(self.agreement, _UNKNOWN)
        source, there = self.settings.local(agreement.config).backbone.source, agreement.config.backbone.name
        clip = load_backbone(source, self.settings.device)
        if clip.digest != agreement.backbone:
            raise FedotpError(
                f"{source} {clip.digest[:12]}, expected {there} {agreement.backbone[:12]}; install the same file"
            )
        self.clip = clip
        return f"{source} {clip.digest[:12]}, as at the server"

    def resources(self) -> str:
        require_writable(self.settings.state)
        dataset, agreement = needed(self.dataset, "no images"), needed(self.agreement, _UNKNOWN)
        clip = needed(self.clip, "no backbone")
        name, n_train, n_test = self.settings.name, len(dataset.train), len(dataset.test)
        require_bounded(agreement.config, name)
        config = self.settings.local(agreement.config)
        task = make_task(config, clip, agreement.classes or dataset.classes, agreement.template)
        require_memory(task, config, max(n_train, n_test), name)
        require_room(config, clip, n_train, n_test, name)
        return f"enough to train on the device {task.device}, and to store encoded images in {self.settings.state}"

    def policy(self, path: Path | None, key: Path | None) -> str:
        text = read_policy(needed(path, "no --policy"), key)
        self.settings = replace(self.settings, policy=text)
        data, facts = self.dataset, key_facts(self.folder) if self.keys and self.folder else []
        authority = next((digest for what, digest, _ in facts if what == "authority"), "")
        limits, n_images = self.settings.limits, len(data.train) if data else 1
        if self.agreement is None:
            limits.require_authority(authority)
            return f"{path}; not compared with the server's settings"
        agreement = replace(self.agreement, classes=self.agreement.classes or (data.classes if data else ()))
        limits.require(agreement, authority=authority, n_images=n_images)
        config, ledger = self.settings.local(agreement.config), self.settings.state / "releases.jsonl"
        Ledger(ledger, agreement.run, config.settings, n_images, limits).require_room(self.settings.name)
        return f"{path} permits this federation; every order is checked again"

    def secure_sums(self) -> str:
        if not self.settings.limits.secure_sums and needed(self.agreement, _UNKNOWN).secure is None:
            raise UncheckedError("not used")
        keys = needed(self.keys, "requires the keys").peers or {}
        peers, known = list(keys), {name: key_fingerprint(key) for name, key in keys.items()}
        if len(peers) < (least := self.settings.limits.secure_sites):
            names = f"peers.crt has the keys of {counted(len(peers), 'site')}"
            raise FedotpError(f"{names}, at least {least} are required; ask the coordinator for the newest file")
        if self.asked and not self.asked.refused and digest_of_keys(known) != self.asked.peers:
            raise CautionError(
                "peers.crt differs from the server's list of keys; ask the coordinator for the newest file"
            )
        return f"peers.crt has the keys of {listed(peers)}"


def _sampled(split: Split) -> Split:
    """Return all images, or of many some at equal distances and the first of each class."""
    rows = np.linspace(0, len(split) - 1, min(_MOST_IMAGES // 2, len(split))).astype(int)
    return split.select(np.union1d(rows, np.unique(split.labels, return_index=True)[1]))
