"""`fedotp client --check`: what would stop this site, found before it joins a federation."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedotp
from fedotp._files import require_writable
from fedotp._text import counted, one_line
from fedotp.clip import CLIP
from fedotp.config import DataSettings
from fedotp.data import Dataset, Split, check_dataset, load_dataset
from fedotp.errors import FedotpError, listed
from fedotp.flower._agreement import Agreement
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower._findings import CautionError, Finding, UncheckedError, examine, needed
from fedotp.flower.keys import SiteKeys, expiring, key_facts, load_private, present
from fedotp.flower.link import CLOCK, Asked, ask_server
from fedotp.flower.site._app import stay_offline
from fedotp.flower.site._limits import require_bounded, require_memory, require_room
from fedotp.flower.site._policy import read_policy
from fedotp.flower.site._site_settings import SiteSettings
from fedotp.images import WINDOW
from fedotp.runs.one import class_numbers, load_backbone, make_task

_MOST_IMAGES = 400  # that are decoded; of more, a sample of both splits
_MARGIN = 2.0  # seconds ahead of the server's clock that are still no reason for a warning
_NO_ANSWER = "the server did not answer"
_NO_AGREEMENT = "the server's settings are unknown"
_PART = "--part uses the server's data set"


def check_site(settings: SiteSettings, server: str, policy: Path | None, policy_key: Path | None) -> Iterator[Finding]:
    """Check a site's set-up without joining; `policy` is not read into `settings` yet."""
    stay_offline()
    check = _Check(settings, server, policy, policy_key)
    for item, work in (
        ("key", check.key),
        ("certificate", check.certificate),
        ("address", check.address),
        ("TLS", check.tls),
        ("accepted", check.accepted),
        ("clock", check.clock),
        ("version", check.version),
        ("data", check.data),
        ("images", check.images),
        ("groups", check.groups),
        ("classes", check.classes),
        ("backbone", check.backbone),
        ("memory", check.memory),
        ("disk", check.disk),
        ("policy", check.policy),
        ("secure sums", check.secure_sums),
    ):
        yield examine(item, work)


class _Check:
    """The checks of a site; each uses what those before it have found."""

    def __init__(self, settings: SiteSettings, server: str, policy: Path | None, policy_key: Path | None) -> None:
        self.settings, self.server = settings, server
        self._policy, self._policy_key = policy, policy_key
        self.folder = Path(settings.keys) if settings.keys else None
        self.keys: SiteKeys | None = None
        self.asked: Asked | None = None
        self.agreement: Agreement | None = None
        self.dataset: Dataset | None = None
        self.clip: CLIP | None = None

    # Keys and the server --------------------------------------------------------------------------------------------

    def key(self) -> str:
        path = present(needed(self.folder, "--insecure") / "site.key", origin="make it with `fedotp keys request`")
        load_private(path)
        status = path.stat()
        whose = "this user" if status.st_uid == os.getuid() else f"user {status.st_uid}"
        return f"{path}: owned by {whose}, mode {stat.S_IMODE(status.st_mode):o}"

    def certificate(self) -> str:
        folder = needed(self.folder, "--insecure")
        self.keys = SiteKeys.read(folder)
        if soon := list(expiring(self.keys.certificates())):
            raise CautionError("; ".join(soon))
        return next(f"{what}: {remark}" for what, _, remark in key_facts(folder) if what.startswith("site "))

    def address(self) -> str:
        if self.folder is not None:
            needed(self.keys, "requires the keys")
        self.asked = ask_server(self.server, self.keys)
        return f"{self.server} answers"

    def tls(self) -> str:
        asked = needed(self.asked, _NO_ANSWER)
        needed(self.folder, "--insecure")
        if asked.untrusted:
            raise FedotpError(asked.untrusted)
        return "the server's certificate is signed by this site's authority, for this host name"

    def accepted(self) -> str:
        asked = self._answered()
        if asked.refused:
            raise FedotpError(asked.refused)
        return "the server accepts this site's key" if self.folder else "the server accepts any site (--insecure)"

    def clock(self) -> str:
        ahead = needed(self._answered().ahead, "the server's answer contains no time")
        text = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
        rule = f"must be at most {CLOCK[1]} s ahead and {-CLOCK[0]} s behind; synchronise the clocks with NTP"
        if not CLOCK[0] < ahead < CLOCK[1]:
            raise FedotpError(f"{text}: {rule}")
        if not CLOCK[0] / 2 < ahead < _MARGIN:
            raise CautionError(f"{text}: {rule}")
        return text

    def version(self) -> str:
        asked = self._answered()
        if not asked.facts:
            raise UncheckedError("the server did not say its version")
        there, text = one_line(asked.facts.get("version"), 40), asked.facts.get("agreement")
        if not text:
            raise UncheckedError("the server is still starting; repeat the check")
        try:
            self.agreement = Agreement.read(text)
        except FedotpError as error:
            raise FedotpError(f"fedotp {fedotp.__version__} here, {there} at the server: {error}") from error
        if there != fedotp.__version__:
            raise CautionError(f"fedotp {fedotp.__version__} here, {there} at the server: install the same version")
        return f"fedotp {there} here and at the server"

    def _answered(self) -> Asked:
        asked = needed(self.asked, _NO_ANSWER)
        if asked.untrusted:
            raise UncheckedError("the connection is not trusted")
        return asked

    # Images -------------------------------------------------------------------------------------------------------

    def data(self) -> str:
        if not self.settings.data:
            raise UncheckedError(_PART)
        split = self.agreement.config.data.test_split if self.agreement else DataSettings.test_split
        self.dataset = load_dataset(self.settings.data, test_split=split)
        sizes = f"{len(self.dataset.train):,} training and {counted(len(self.dataset.test), 'test image')}"
        text = f"{sizes} of {counted(len(self.dataset.classes), 'class', 'classes')}"
        if self.dataset.notes:
            raise CautionError(f"{text}; {'; '.join(self.dataset.notes)}")
        return text

    def images(self) -> str:
        dataset = self._data()
        config = self.agreement and self.settings.local(self.agreement.config)
        window = self.settings.window or (config.data.window if config else WINDOW)
        n_all = len(dataset.train) + len(dataset.test)
        if n_all > _MOST_IMAGES:
            dataset = replace(dataset, train=_sampled(dataset.train), test=_sampled(dataset.test))
        report = check_dataset(dataset, window=window)
        n, hidden = report.n_images, len(report.clipped)
        which = f"all {n:,}" if n == n_all else f"{n:,} of {n_all:,} (evenly spaced, and one of each class)"
        if report.broken:
            first = report.broken[0]
            text = f"{counted(len(report.broken), 'broken image')} of {which}, first {first.where} ({first.reason})"
            raise FedotpError(f"{text}; replace or remove them; `fedotp data check` lists them")
        if 2 * hidden > n:
            raise FedotpError(f"the window {window} makes {hidden} of {n} images black or white; set another --window")
        problems = {"nearly black or white": hidden, "nearly dark": len(report.dark)}
        problems |= {"with two labels": len(report.contradictions), "also in train": len(report.duplicates)}
        if wrong := [f"{count} {what}" for what, count in problems.items() if count]:
            raise CautionError(f"decoded {which} with the window {window}: {', '.join(wrong)}; see `fedotp data check`")
        return f"decoded {which}; window {window}"

    def groups(self) -> str:
        dataset = self._data()
        if not dataset.groups:
            raise UncheckedError("patients are unknown; name them in the column group of a table, or separate them")
        return f"{counted(len(dataset.groups), 'group')}, none in training and test images"

    def classes(self) -> str:
        dataset, agreement = self._data(), self._agreed()
        if not agreement.classes:
            raise UncheckedError(f"the server collects the sites' classes; here: {listed(dataset.classes)}")
        class_numbers(agreement.classes, dataset, "the federation")
        return f"{len(dataset.classes)} of the federation's {counted(len(agreement.classes), 'class', 'classes')}"

    # Resources and limits -------------------------------------------------------------------------------------------

    def backbone(self) -> str:
        agreement, source = self.agreement, self.settings.backbone
        if agreement is None and not source:
            raise UncheckedError(_NO_AGREEMENT)
        source = self.settings.local(agreement.config).backbone.source if agreement else source
        clip = load_backbone(source, self.settings.device)
        if agreement is None:
            return f"{source} {clip.digest[:12]}; not compared with the server's"
        if clip.digest != agreement.backbone:
            there = f"{agreement.config.backbone.name} {agreement.backbone[:12]}"
            raise FedotpError(f"{source} {clip.digest[:12]}, expected {there}; install the same file")
        self.clip = clip
        return f"{source} {clip.digest[:12]}, as at the server"

    def memory(self) -> str:
        dataset, agreement, clip = self._data(), self._agreed(), needed(self.clip, "requires the backbone")
        require_bounded(agreement.config, self.settings.name)
        config = self.settings.local(agreement.config)
        task = make_task(config, clip, agreement.classes or dataset.classes, agreement.template)
        require_memory(task, config, max(len(dataset.train), len(dataset.test)), self.settings.name)
        return f"enough to train with these images on the device {task.device}"

    def disk(self) -> str:
        require_writable(self.settings.state)
        dataset, agreement, clip = self._data(), self._agreed(), needed(self.clip, "requires the backbone")
        config = self.settings.local(agreement.config)
        require_room(config, clip, len(dataset.train), len(dataset.test), self.settings.name)
        return f"{self.settings.state} is writable, with enough space for the encoded images"

    def policy(self) -> str:
        if self._policy is None:
            raise UncheckedError("no --policy")
        self.settings = replace(self.settings, policy=read_policy(self._policy, self._policy_key))
        text = f"{self._policy}{', correctly signed' if self._policy_key else ''}"
        if self.agreement is None:
            return f"{text}; not compared with the server's settings"
        dataset, facts = self.dataset, key_facts(self.folder) if self.keys and self.folder else []
        agreement = replace(self.agreement, classes=self.agreement.classes or (dataset.classes if dataset else ()))
        authority = next((digest for what, digest, _ in facts if what == "authority"), "")
        n_images = len(dataset.train) if dataset else 1
        self.settings.limits.require(agreement, authority=authority, n_images=n_images)
        return f"{text}; permits this federation"

    def secure_sums(self) -> str:
        is_secure = self.agreement is not None and self.agreement.secure is not None
        if not (is_secure or self.settings.limits.secure_sums):
            raise UncheckedError("not used" if self.agreement else _NO_AGREEMENT)
        peers = needed(self.keys, "requires the keys").peers or {}
        if len(peers) < LEAST_SITES:
            raise FedotpError(
                f"{self.folder}/peers.crt names {counted(len(peers), 'site')}, a sum requires at least {LEAST_SITES}; "
                "ask the coordinator for the newest file"
            )
        return f"peers.crt names {len(peers)} sites: {listed(list(peers))}"

    def _data(self) -> Dataset:
        return needed(self.dataset, "requires the data" if self.settings.data else _PART)

    def _agreed(self) -> Agreement:
        return needed(self.agreement, _NO_AGREEMENT)


def _sampled(split: Split) -> Split:
    """Return images at equal distances, and the first of each class."""
    n = len(split)
    rows = np.linspace(0, n - 1, min(_MOST_IMAGES // 2, n)).astype(int)
    return split.select(np.union1d(rows, np.unique(split.labels, return_index=True)[1]))
