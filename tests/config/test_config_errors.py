"""Bad configurations: one exact line each."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedotp.config import Config
from fedotp.config._schema import all_kinds, bare_kind
from fedotp.errors import FedotpError
from fedotp.methods import METHODS, FedOTP

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
_SECTION = st.sampled_from(["data", "partition", "method", "federation", "prompt", "seed"]) | st.text()
_KEY = st.sampled_from(["dataset", "scheme", "alpha", "name", "mass", "rounds", "words", "shots"]) | st.text()


def _refusal(text: str, tmp_path: Path) -> str:
    path = tmp_path / "runs.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FedotpError) as caught:
        Config.read(path)
    return str(caught.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            'privacy.unit = "site"\nserver.rule = "median"',
            'server.rule = "median": must be "average" with privacy.unit = "site", which already bounds every update',
        ),
        (
            'data.crops = 3\nauthors.normalisation = "cifar10"',
            'data.crops = 3: must be 0 with authors.normalisation = "cifar10"',
        ),
        (
            "evaluation.clients = 3\nauthors.evaluate_sampled = true",
            "evaluation.clients = 3: must be 0 with authors.evaluate_sampled = true",
        ),
        # names
        ("federation.lr = 0.5", "unknown key federation.lr; did you mean optimizer.lr?"),
        ("qqq = 5", "unknown key qqq; `fedotp config` lists all keys"),
        (
            "[qqq]\nalpha = 1.0",
            "unknown section qqq; the sections are data, partition, backbone, prompt, method, federation, optimizer, "
            "server, attack, evaluation, compute, privacy, authors",
        ),
        ('"se\\ned" = 1', 'unknown key "se\\ned"; did you mean seed?'),
        ('method = "coop"', 'method = "coop": method is a section, not a key; did you mean method.name?'),
        ("[[data]]", "data = [{'dataset': 'x'}]: data is a section, not a key; did you mean data.dataset?"),
        (
            'method = {name = "coop", mass = 0.5}',
            "unknown key method.mass: an option of fedotp; the options of coop are: none",
        ),
        # types
        (
            'federation.holdout = "sketch"',
            'federation.holdout = "sketch": must be a list of texts such as ["abc", "def"]',
        ),
        (
            "federation.rounds = 9223372036854775808",
            "federation.rounds = 9223372036854775808: must be a number of at most 64 bits",
        ),
        (f"seed = 0x{'f' * 5000}", "seed = a huge number: must be a number of at most 64 bits"),
        (
            'optimizer.lr = "papers"',
            'optimizer.lr = "papers": must be a number such as 0.5 or paper, mini or falling; did you mean paper?',
        ),
        ('optimizer.name = "sdg"', 'optimizer.name = "sdg": must be own, sgd, adam or adamw; did you mean sgd?'),
        (
            'method.name = "fedopt"',
            f'method.name = "fedopt": must be {", ".join(METHODS)} or one of your own with --import FILE.py; '
            "did you mean fedotp?",
        ),
        # ranges
        ("server.malicious = 0.5", "server.malicious = 0.5: must be a share in [0, 0.5) or a whole number"),
        (
            'data.template = "{:>99999999999} {}"',  # formatting would fill the memory
            'data.template = "{:>99999999999} {}": must contain {} once, for the class name, for example '
            '"a photo of a {}."',
        ),
        (
            'partition.scheme = "dirichlett"',
            "partition: unknown scheme 'dirichlett'; did you mean 'dirichlet'? "
            "(iid, pathological, dirichlet, domain, domain-dirichlet, site, coarse, quantity, given, or one of "
            "your own with --import FILE.py)",
        ),
    ],
)
def test_one_line(text: str, line: str, tmp_path: Path) -> None:
    """Each with a data set, so that the line is about what is wrong."""
    if text == "[[data]]":
        text += '\ndataset = "x"'
    elif not text.startswith("data"):
        text = f'{text}\n[data]\ndataset = "x"'
    else:
        text = f'data.dataset = "x"\n{text}'
    assert _refusal(text, tmp_path) == f"runs.toml: {line}"


_HUGE = {int: 2**63 - 1, float: 1e300}
_NUMBERS = [
    (method, key, _HUGE[bare])
    for method, cls in METHODS.items()
    for key, kind in all_kinds(cls).items()
    if (bare := bare_kind(kind)[0]) in _HUGE and not key.endswith("seed")
    if method == FedOTP.name or key.startswith("method.")
]


def test_every_number_has_a_largest_value_that_makes_sense() -> None:
    """What is huge would allocate, overflow or never end: it is refused with the configuration."""
    for method, key, value in _NUMBERS:
        section, name = key.split(".")
        tables: dict[str, dict[str, object]] = {"data": {"dataset": "x"}, "method": {"name": method}}
        tables.setdefault(section, {})[name] = value
        if name == "alpha" and section == "partition":
            tables[section]["scheme"] = "dirichlet"
        with pytest.raises(FedotpError, match=rf"{key}( =| is|:).*(must be|must not be|must have)") as caught:
            Config.from_dict(tables)
        assert str(value) in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_a_data_set_is_required(tmp_path: Path) -> None:
    assert _refusal("seed = 3", tmp_path) == (
        "runs.toml: missing key data.dataset: must be the name of a data set (see fedotp data list) or a folder"
    )


def test_files_that_are_not_configurations(tmp_path: Path) -> None:
    line = _refusal("[data]\nroot =", tmp_path)
    assert line == "runs.toml: not valid TOML: Invalid value (at end of document)"
    assert "not valid TOML: " in _refusal(f"seed = {'1' * 5000}", tmp_path)
    for key in (".".join("a" * 50_000), " . ".join(['"a.b"', "c"] * 25_000)):  # minutes, if they were parsed
        for text in (f"{key} = 1", f"[{key}]", f"[[ {key} ]]", f"a = {{{key} = 1}}", f"a = {{b = 1, {key} = 1}}"):
            assert _refusal(text, tmp_path) == "runs.toml: not valid TOML: a dotted key has more than 16 parts"
    assert "not valid TOML: it has 1,100,000 characters" in _refusal("#" * 1_100_000, tmp_path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b'[data]\ndataset = "caf\xe9"\n')
    with pytest.raises(FedotpError, match=r"latin\.toml: not UTF-8 text; a configuration must be a TOML file$"):
        Config.read(path)
    with pytest.raises(FedotpError, match=r"^cannot read .*: Is a directory$"):
        Config.read(tmp_path)


def test_text_that_no_file_can_hold() -> None:
    with pytest.raises(FedotpError, match=r'^data\.root = "\\uDCFF": must be text in Unicode$'):
        Config.from_dict({"data": {"dataset": "x", "root": "\udcff"}})


@given(st.dictionaries(_SECTION, st.dictionaries(_KEY, _ANYTHING, max_size=3) | _ANYTHING, max_size=3))
def test_anything_is_read_or_refused_in_one_line(tables: dict[str, object]) -> None:
    config, line = None, ""
    try:
        config = Config.from_dict(tables, where="x.toml")
    except FedotpError as error:
        line = str(error)
    if config is None:
        assert line.startswith("x.toml: ")
        assert len(line.splitlines()) == 1
    else:
        assert Config.from_dict(config.to_dict()) == config
