"""The paper's claims, each with the comparisons that judge it.

`comparisons` and `recorded` were committed before the study was run; what could not be completed was left out
afterwards, whatever it showed. `added` came with the results: it is shown, and decides nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from recipes.claims.data import ZERO_SHOT, Results, mean_of, nothing
from recipes.claims.judge import MARGIN, Comparison, Judged, Series, judge
from recipes.claims.settings import ALPHAS, AVERAGE, BASELINES, CLASSICAL, FEDOTP, MASSES, SHARED, SHOTS

_FEW = {"classes-shots": "cifar10-mini", "emoji-shots": "emoji"}
_BASELINES = {"classes-shots": BASELINES, "emoji-shots": ("coop", "promptfl")}
"""Which of them were run where."""


@dataclass(frozen=True)
class Claim:
    """What the paper says and where, and what is compared to judge it.

    Differences are shown multiplied by `scale`. `recorded` are comparisons of recipes/field, `added` what has no say in
    the verdict. A claim without a `place` in the paper is a question of ours; one without comparisons was not tested.
    """

    name: str
    says: str
    place: str
    comparisons: Callable[[Results], Iterable[Comparison]] | None = None
    margin: float = MARGIN
    scale: float = 100
    recorded: Callable[[Results], Iterable[Judged]] | None = None
    added: Callable[[Results], Iterable[Judged]] | None = None

    @property
    def is_tested(self) -> bool:
        """Whether there is anything to judge it by."""
        return self.comparisons is not None or self.recorded is not None

    def judged(self, results: Results) -> list[Judged]:
        """All comparisons and what became of them."""
        own = judge(list(self.comparisons(results)), self.margin) if self.comparisons else []
        earlier = self.recorded(results) if self.recorded else ()
        return [*own, *(replace(each, row=called(each.row)) for each in earlier)]


def called(method: str) -> str:
    """A method as it is written in tables."""
    return _CALLED.get(method, method)


PLACE_NAMES = {
    "classes-shots": "two classes each, few shots",
    "emoji-shots": "emoji, four classes each, few shots",
    "alpha": "Dirichlet",
}
"""Settings as they are written in tables."""
_RECORDED = {
    "two-classes": "two classes each, all images (recorded)",
    "fifty": "fifty clients, Dirichlet 0.5 (recorded)",
    "vendors": "emoji, one client per vendor (recorded)",
}

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


def counted(shots: int) -> str:
    """A number of shots in words."""
    return f"{shots} shot{'' if shots == 1 else 's'}"


def place(results: Results, setting: str, method: str, number: str = "accuracy") -> Series:
    """A number of a method in a setting, the mean over what is varied there."""
    if setting == "alpha" and method == CLASSICAL:
        return results.mean("alpha-classical", method, ALPHAS[1:], number)
    return results.mean(setting, method, ALPHAS if setting == "alpha" else SHOTS, number)


def _against(setting: str) -> Callable[[Results], Iterable[Judged]]:
    """FedOTP less every baseline, in a setting of recipes/field."""
    return lambda results: results.recorded(setting, (ZERO_SHOT, *BASELINES), _RECORDED[setting])


def _ablated(results: Results, method: str, column: str) -> Iterator[Judged]:
    """FedOTP less a variant of it, in the settings of recipes/field."""
    for setting, name in _RECORDED.items():
        (found,) = results.recorded(setting, (method,), column)
        yield replace(found, row=name)


def _pathological(results: Results) -> Iterator[Comparison]:
    for setting, methods in _BASELINES.items():
        ours = place(results, setting, FEDOTP)
        for method in (ZERO_SHOT, *methods):
            yield Comparison(called(method), PLACE_NAMES[setting], ours, place(results, setting, method))


def _alphas(results: Results) -> Iterator[Comparison]:
    for alpha in ALPHAS:
        ours = results.series("alpha", FEDOTP, alpha)
        for method in (ZERO_SHOT, *SHARED):
            yield Comparison(called(method), f"α = {alpha:g}", ours, results.series("alpha", method, alpha))


def _trends(results: Results) -> Iterator[Comparison]:
    for method in (*SHARED, FEDOTP):
        slope = results.slope("alpha", method, ALPHAS, 10)
        falls = method in SHARED  # with heterogeneity, so it rises with alpha
        column = "falls with heterogeneity" if falls else "rises with heterogeneity"
        ours, theirs = (slope, nothing(slope)) if falls else (nothing(slope), slope)
        yield Comparison(called(method), column, ours, theirs)


def _few(results: Results, better: str, worse: str, column: str) -> Iterator[Comparison]:
    """A rule of matching less another, with few shots."""
    for setting in _FEW:
        ours, theirs = (place(results, setting, method) for method in (better, worse))
        yield Comparison(PLACE_NAMES[setting], column, ours, theirs)


def _transport_added(results: Results) -> Iterator[Judged]:
    column = "unbalanced less averaging"
    yield from judge(list(_few(results, FEDOTP, AVERAGE, column)))
    yield from _ablated(results, AVERAGE, column)


def _unbalanced(results: Results) -> Iterator[Comparison]:
    yield from _few(results, FEDOTP, CLASSICAL, _UNBALANCED)
    ours, theirs = results.mean("alpha", FEDOTP, ALPHAS[1:]), place(results, "alpha", CLASSICAL)
    yield Comparison("Dirichlet 0.3 to 10", _UNBALANCED, ours, theirs)


_UNBALANCED = "unbalanced less classical"


def at_mass(mass: float) -> tuple[str, str]:
    """FedOTP at a mass under Dirichlet 0.3: setting and method."""
    if mass == 1:
        return "alpha-classical", CLASSICAL
    return ("alpha", FEDOTP) if mass == 0.8 else ("dirichlet-mass", f"fedotp:mass={mass}")


def masses(results: Results) -> dict[float, Series]:
    """Accuracy by mass."""
    return {mass: results.series(*at_mass(mass), 0.3) for mass in MASSES}


def _mass(results: Results) -> Iterator[Comparison]:
    by_mass = masses(results)
    middle = mean_of((by_mass[0.7], by_mass[0.8]))
    for end in (1.0, 0.5):
        yield Comparison("20 clients, Dirichlet 0.3", f"γ 0.7 and 0.8 less γ {end:g}", middle, by_mass[end])


def _shots_rise(results: Results) -> Iterator[Comparison]:
    for setting, methods in _BASELINES.items():
        for method in (FEDOTP, *methods):
            slope = results.slope(setting, method, SHOTS, 2)
            yield Comparison(called(method), PLACE_NAMES[setting], slope, nothing(slope))


def _shots_ahead(results: Results) -> Iterator[Comparison]:
    for setting, methods in _BASELINES.items():
        for shots in SHOTS:
            ours = results.series(setting, FEDOTP, shots)
            for method in (method for method in SHARED if method in methods):
                theirs = results.series(setting, method, shots)
                yield Comparison(f"{called(method)}, {_FEW[setting]}", counted(shots), ours, theirs)


def _counts(results: Results, counts: Iterable[tuple[int, int]], *, turn: bool) -> Iterator[Comparison]:
    for setting, full, at in (("emoji-prompts", "emoji-shots", 8), ("dirichlet-prompts", "alpha", 0.3)):
        ours = results.series(full, FEDOTP, at)
        column = "emoji, 8 shots" if full == "emoji-shots" else "Dirichlet 0.3"
        for shared, private in counts:
            if setting == "emoji-prompts" and (shared, private) == (2, 0):  # not run
                continue
            theirs = results.series(setting, f"fedotp:n_shared={shared}:n_private={private}", at)
            pair = (theirs, ours) if turn else (ours, theirs)
            yield Comparison(f"{shared} global, {private} local", column, *pair)


def _global_part(results: Results) -> Iterator[Comparison]:
    for setting, name in PLACE_NAMES.items():
        own = place(results, setting, FEDOTP, "global_part")
        yield Comparison(name, "global prompt less zero-shot CLIP", own, place(results, setting, ZERO_SHOT))


def _local_part(results: Results) -> Iterator[Comparison]:
    for setting, name in PLACE_NAMES.items():
        own, whole = place(results, setting, FEDOTP, "global_part"), place(results, setting, FEDOTP)
        yield Comparison(name, "both prompts less the global one alone", whole, own)


def _focus(results: Results) -> Iterator[Comparison]:
    column = "more of the plan on the object than of the image"
    for mass in MASSES[:-1]:
        both = results.looks(mass, "both")
        yield Comparison(f"γ = {mass:g}", column, both, nothing(both))
    yield Comparison("γ = 0.5 less γ = 0.9", column, results.looks(0.5, "both"), results.looks(0.9, "both"))


CLAIMS = (
    Claim(
        "pathological",
        "Where classes are dealt out, FedOTP is ahead of every baseline",
        "Table 1, Section 5.2",
        _pathological,
        recorded=_against("two-classes"),
    ),
    Claim(
        "dirichlet",
        "Under Dirichlet shift with many clients, FedOTP is ahead of every baseline",
        "Table 3, Section 5.2",
        recorded=_against("fifty"),
    ),
    Claim("alpha", "FedOTP is ahead at every degree of heterogeneity", "Table A5, Section C.4", _alphas),
    Claim(
        "alpha-trend",
        "With heterogeneity a shared prompt loses, FedOTP gains",
        "Table A5, Section C.4",
        _trends,
        margin=MARGIN / 2,
    ),
    Claim(
        "vendors",
        "Where clients differ in style, FedOTP is ahead of every baseline",
        "Table A2, Section C.1",
        recorded=_against("vendors"),
    ),
    Claim(
        "vendors-labels",
        "Where they differ in style and labels, FedOTP is ahead of every baseline",
        "Tables 2 and A3, Section 5.2",
    ),
    Claim(
        "label-shift-added",
        "Label shift added to style lowers every method, a shared prompt most",
        "Tables A2 and A3, Section C.2",
    ),
    Claim("robust", "FedPer and pFedPrompt fall when data change, FedOTP hardly", "Table 1, Section 5.2"),
    Claim(
        "transport",
        "Transport is better than averaging similarities",
        "Tables 4 and A5, Section 5.3",
        lambda results: _few(results, CLASSICAL, AVERAGE, "classical less averaging"),
        added=_transport_added,
    ),
    Claim(
        "unbalanced",
        "Unbalanced transport is better than classical",
        "Tables 4 and A5, Section 5.3",
        _unbalanced,
        added=lambda results: _ablated(results, CLASSICAL, _UNBALANCED),
    ),
    Claim(
        "mass",
        "Accuracy rises and then falls as γ decreases; best is 0.7 to 0.8",
        "Table A4, Section C.3",
        _mass,
        added=lambda results: _ablated(results, "fedotp:mass=0.5", "γ 0.8 less γ 0.5"),
    ),
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
    Claim("fast", "FedOTP converges in fewer rounds", "Figure A3, Section C.5"),
    Claim("steady", "FedOTP fluctuates less", "Figure A3, Section C.5"),
    Claim("focus", "With less mass, plans centre on objects, not on the background", "Figure A4, Section D.1", _focus),
    Claim("alike", "Local prompts of clients with like labels are alike", "Figure A5, Section D.2"),
)
