"""The paper's claims, each with the comparisons that judge it; written before the study was run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from recipes.claims.data import ZERO_SHOT, Results, as_splits, less, mean_of, nothing
from recipes.claims.judge import MARGIN, Comparison, Judged, Series, judge
from recipes.claims.settings import (
    ALPHAS,
    AVERAGE,
    BASELINES,
    CLASSICAL,
    FEDOTP,
    MASSES,
    SHARED,
    SHOTS,
    TABLE_3,
)

_CLASSES, _EMOJI = "cifar10-mini", "emoji"
_FEW = {"classes-shots": _CLASSES, "emoji-shots": _EMOJI}
_PLACES = ("classes-shots", "emoji-shots", "alpha", "vendors", "vendors-labels")
"""Settings in which the ablations are run."""


@dataclass(frozen=True)
class Claim:
    """What the paper says and where, and what is compared to judge it.

    Differences are shown multiplied by `scale`. `recorded` are comparisons of recipes/field. A claim without a `place`
    in the paper is a question of ours.
    """

    name: str
    says: str
    place: str
    comparisons: Callable[[Results], Iterable[Comparison]]
    margin: float = MARGIN
    scale: float = 100
    recorded: Callable[[Results], Iterable[Judged]] = lambda _: ()

    def judged(self, results: Results) -> list[Judged]:
        """All comparisons and what became of them."""
        own = judge(list(self.comparisons(results)), self.margin)
        return [*own, *(replace(each, row=called(each.row)) for each in self.recorded(results))]


def called(method: str) -> str:
    """A method as it is written in tables."""
    return _CALLED.get(method, method)


PLACE_NAMES = {
    "classes-shots": "two classes each, few shots",
    "emoji-shots": "emoji, four classes each, few shots",
    "alpha": "Dirichlet 0.1 to 10",
    "vendors": "vendors, 4 shots",
    "vendors-all": "vendors, all images",
    "vendors-labels": "vendors and Dirichlet 0.1",
    "hundred": "hundred clients, Dirichlet 0.3",
}
"""Settings as they are written in tables."""

_CALLED = {
    ZERO_SHOT: "zero-shot CLIP",
    "coop": "CoOp, each alone",
    "promptfl": "PromptFL",
    "promptfl-fedprox": "PromptFL+FedProx",
    "promptfl-ft": "PromptFL+FT",
    "promptfl-fedper": "PromptFL+FedPer",
    "promptfl-fedamp": "PromptFL+FedAMP",
    "pfedprompt": "pFedPrompt",
    FEDOTP: "FedOTP",
    CLASSICAL: "FedOTP, classical",
    AVERAGE: "FedOTP, averaging",
}


def place(results: Results, setting: str, method: str, number: str = "accuracy") -> Series:
    """A number of a method in a setting, the mean over what is varied there."""
    values = {"classes-shots": SHOTS, "emoji-shots": SHOTS, "alpha": ALPHAS}.get(setting)
    return results.mean(setting, method, values, number) if values else results.series(setting, method, None, number)


def _against(results: Results, setting: str, methods: Iterable[str]) -> Iterator[Comparison]:
    ours = place(results, setting, FEDOTP)
    for method in methods:
        yield Comparison(called(method), PLACE_NAMES[setting], ours, place(results, setting, method))


def _pathological(results: Results) -> Iterator[Comparison]:
    for setting in _FEW:
        yield from _against(results, setting, (ZERO_SHOT, *BASELINES))


def _alphas(results: Results) -> Iterator[Comparison]:
    for alpha in ALPHAS:
        ours = results.series("alpha", FEDOTP, alpha)
        for method in (ZERO_SHOT, *TABLE_3):
            yield Comparison(called(method), f"α = {alpha:g}", ours, results.series("alpha", method, alpha))


def _trends(results: Results) -> Iterator[Comparison]:
    for method in (*SHARED, "coop", FEDOTP):
        slope = results.slope("alpha", method, ALPHAS, 10)
        falls = method in SHARED  # with heterogeneity, so it rises with alpha
        column = "falls with heterogeneity" if falls else "rises with heterogeneity"
        ours, theirs = (slope, nothing(slope)) if falls else (nothing(slope), slope)
        yield Comparison(called(method), column, ours, theirs)


def _vendors(results: Results) -> Iterator[Comparison]:
    yield from _against(results, "vendors", (ZERO_SHOT, *BASELINES))
    yield from _against(results, "vendors-all", (ZERO_SHOT, *TABLE_3))


def _label_shift_added(results: Results) -> Iterator[Comparison]:
    before = {method: as_splits(results.series("vendors-all", method)) for method in (*TABLE_3, FEDOTP)}
    after = {method: results.series("vendors-labels", method) for method in before}
    for method, own in before.items():
        yield Comparison(called(method), "loses by label shift", own, after[method])
    for shared in SHARED:
        for method in ("coop", FEDOTP):
            lost = less(before[shared], after[shared]), less(before[method], after[method])
            yield Comparison(called(method), f"loses less than {called(shared)}", *lost)


def _ablation(better: str, worse: str) -> Callable[[Results], Iterator[Comparison]]:
    def comparisons(results: Results) -> Iterator[Comparison]:
        for setting in _PLACES:
            ours, theirs = (place(results, setting, method) for method in (better, worse))
            yield Comparison(PLACE_NAMES[setting], f"{called(better)} less {called(worse)}", ours, theirs)

    return comparisons


def at_mass(mass: float) -> str:
    """FedOTP at a mass, as it is called in the study."""
    return {0.8: FEDOTP, 1.0: CLASSICAL}.get(mass, f"fedotp:mass={mass}")


def masses(results: Results) -> dict[str, dict[float, Series]]:
    """Accuracy by mass, in each place where all masses were run."""
    found: dict[str, dict[float, Series]] = {"emoji, 1 to 16 shots": {}, "two classes each, 2 and 8 shots": {}}
    found["Dirichlet 0.3"] = {}
    for mass in MASSES:
        method = at_mass(mass)
        other = method not in (FEDOTP, CLASSICAL)
        found["emoji, 1 to 16 shots"][mass] = results.mean("emoji-shots", method, SHOTS)
        few = "classes-mass" if other else "classes-shots"
        found["two classes each, 2 and 8 shots"][mass] = results.mean(few, method, (2, 8))
        found["Dirichlet 0.3"][mass] = results.series("dirichlet-mass" if other else "alpha", method, 0.3)
    return found


def _mass(results: Results) -> Iterator[Comparison]:
    for where, by_mass in masses(results).items():
        middle = mean_of((by_mass[0.7], by_mass[0.8]))
        for end in (1.0, 0.5):
            yield Comparison(where, f"γ 0.7 and 0.8 less γ {end:g}", middle, by_mass[end])


def _shots_rise(results: Results) -> Iterator[Comparison]:
    for setting in _FEW:
        for method in (FEDOTP, *BASELINES):
            slope = results.slope(setting, method, SHOTS, 2)
            yield Comparison(called(method), PLACE_NAMES[setting], slope, nothing(slope))


def _shots_ahead(results: Results) -> Iterator[Comparison]:
    for setting, data in _FEW.items():
        for shots in SHOTS:
            ours = results.series(setting, FEDOTP, shots)
            for method in SHARED:
                theirs = results.series(setting, method, shots)
                yield Comparison(f"{called(method)}, {data}", f"{shots} shots", ours, theirs)


def _counts(results: Results, counts: Iterable[tuple[int, int]], *, turn: bool) -> Iterator[Comparison]:
    for setting, full, at in (("emoji-prompts", "emoji-shots", 8), ("dirichlet-prompts", "alpha", 0.3)):
        ours = results.series(full, FEDOTP, at)
        column = "emoji, 8 shots" if full == "emoji-shots" else "Dirichlet 0.3"
        for shared, private in counts:
            theirs = results.series(setting, f"fedotp:n_shared={shared}:n_private={private}", at)
            pair = (theirs, ours) if turn else (ours, theirs)
            yield Comparison(f"{shared} global, {private} local", column, *pair)


def _global_part(results: Results) -> Iterator[Comparison]:
    for setting in (*_PLACES, "hundred"):
        own = place(results, setting, FEDOTP, "global_part")
        column = "global prompt less zero-shot CLIP"
        yield Comparison(PLACE_NAMES[setting], column, own, place(results, setting, ZERO_SHOT))


def _local_part(results: Results) -> Iterator[Comparison]:
    for setting in (*_PLACES, "hundred"):
        own, whole = place(results, setting, FEDOTP, "global_part"), place(results, setting, FEDOTP)
        yield Comparison(PLACE_NAMES[setting], "both prompts less the global one alone", whole, own)


def _robust(results: Results) -> Iterator[Comparison]:
    settings = ("classes-shots", "emoji-shots", "vendors", "vendors-labels")
    everyone = (FEDOTP, *BASELINES)
    found = {(s, m): place(results, s, m) for s in settings for m in everyone}
    pairs = found[settings[0], FEDOTP]

    def worst(method: str) -> Series:
        """How far it is behind the best method where it is furthest behind."""
        return {
            pair: max(max(found[s, m][pair] for m in everyone) - found[s, method][pair] for s in settings)
            for pair in pairs
        }

    for method in ("promptfl-fedper", "pfedprompt"):
        yield Comparison(called(method), "furthest behind the best, less FedOTP's", worst(method), worst(FEDOTP))


def _curves(measure: str) -> Callable[[Results], Iterator[Comparison]]:
    def comparisons(results: Results) -> Iterator[Comparison]:
        for setting, data in (("classes-curves", _CLASSES), ("emoji-curves", _EMOJI)):
            found: Callable[[str, str], Series] = getattr(results, measure)
            ours = found(setting, FEDOTP)
            for method in BASELINES:
                yield Comparison(called(method), data, found(setting, method), ours)

    return comparisons


def _focus(results: Results) -> Iterator[Comparison]:
    for mass in MASSES[:-1]:
        both = results.looks(at_mass(mass), "both")
        yield Comparison(f"γ = {mass:g}", "more of the plan on the object than of the image", both, nothing(both))
    few, many = (results.looks(at_mass(mass), "both") for mass in (0.5, 0.9))
    yield Comparison("γ = 0.5 less γ = 0.9", "more of the plan on the object than of the image", few, many)


def _alike(results: Results) -> Iterator[Comparison]:
    for alpha in (0.1, 0.3, 0.5, 1):
        found = results.correlation(FEDOTP, alpha)
        yield Comparison(f"α = {alpha:g}", "rank correlation × 100", found, nothing(found))


CLAIMS = (
    Claim(
        "pathological",
        "Where classes are dealt out, FedOTP is ahead of every baseline",
        "Table 1, Section 5.2",
        _pathological,
        recorded=lambda results: results.recorded(
            "two-classes", (ZERO_SHOT, *BASELINES), "two classes each, all images (recorded)"
        ),
    ),
    Claim(
        "dirichlet",
        "Under Dirichlet shift with many clients, FedOTP is ahead of every baseline",
        "Table 3, Section 5.2",
        lambda results: _against(results, "hundred", (ZERO_SHOT, *TABLE_3)),
        recorded=lambda results: results.recorded(
            "fifty", (ZERO_SHOT, *BASELINES), "fifty clients, Dirichlet 0.5 (recorded)"
        ),
    ),
    Claim("alpha", "FedOTP is ahead at every degree of heterogeneity", "Table A5, Section C.4", _alphas),
    Claim(
        "alpha-trend",
        "With heterogeneity a shared prompt loses; CoOp and FedOTP gain",
        "Table A5, Section C.4",
        _trends,
        margin=MARGIN / 2,
    ),
    Claim(
        "vendors",
        "Where clients differ in style, FedOTP is ahead of every baseline",
        "Table A2, Section C.1",
        _vendors,
        recorded=lambda results: results.recorded("vendors", (ZERO_SHOT, *BASELINES), "vendors, 10 rounds (recorded)"),
    ),
    Claim(
        "vendors-labels",
        "Where they differ in style and labels, FedOTP is ahead of every baseline",
        "Tables 2 and A3, Section 5.2",
        lambda results: _against(results, "vendors-labels", (ZERO_SHOT, *BASELINES)),
    ),
    Claim(
        "label-shift-added",
        "Label shift added to style lowers every method, a shared prompt most",
        "Tables A2 and A3, Section C.2",
        _label_shift_added,
    ),
    Claim("robust", "FedPer and pFedPrompt fall when data change, FedOTP hardly", "Table 1, Section 5.2", _robust),
    Claim(
        "transport",
        "Transport is better than averaging similarities",
        "Tables 4 and A5, Section 5.3",
        _ablation(CLASSICAL, AVERAGE),
    ),
    Claim(
        "unbalanced",
        "Unbalanced transport is better than classical",
        "Tables 4 and A5, Section 5.3",
        _ablation(FEDOTP, CLASSICAL),
    ),
    Claim("mass", "Accuracy rises and then falls as γ decreases; best is 0.7 to 0.8", "Table A4, Section C.3", _mass),
    Claim("shots-rise", "Every method gains from more shots", "Figure 3, Section 5.3", _shots_rise, margin=MARGIN / 4),
    Claim(
        "shots-ahead",
        "FedOTP is ahead of a shared prompt at every number of shots",
        "Figure 3, Section 5.3",
        _shots_ahead,
    ),
    Claim(
        "cooperation",
        "A global and a local prompt together are better than either kind alone",
        "Sections 1 and 5.2",
        lambda results: _counts(results, ((1, 0), (0, 1), (2, 0), (0, 2)), turn=False),
    ),
    Claim(
        "more-prompts",
        "More than one prompt of each kind is better",
        "",
        lambda results: _counts(results, ((1, 2), (2, 1), (2, 2)), turn=True),
    ),
    Claim("global-part", "The global prompt learns what clients have in common", "Sections 1 and 6", _global_part),
    Claim("local-part", "The local prompt adds what is the client's own", "Sections 1 and 6", _local_part),
    Claim("fast", "FedOTP converges in fewer rounds", "Figure A3, Section C.5", _curves("settled"), margin=1, scale=1),
    Claim("steady", "FedOTP fluctuates less", "Figure A3, Section C.5", _curves("wobble"), margin=0.0005),
    Claim("focus", "With less mass, plans centre on objects, not on the background", "Figure A4, Section D.1", _focus),
    Claim(
        "alike", "Local prompts of clients with like labels are alike", "Figure A5, Section D.2", _alike, margin=0.05
    ),
)
