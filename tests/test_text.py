"""Words for people."""

import pytest

from fedotp._text import counted


@pytest.mark.parametrize(
    ("n", "words", "expected"),
    [
        (0, ("image",), "0 images"),
        (1, ("image",), "1 image"),
        (2000, ("image",), "2,000 images"),
        (1, ("class", "classes"), "1 class"),
        (3, ("class", "classes"), "3 classes"),
    ],
)
def test_one_is_not_several(n: int, words: tuple[str, ...], expected: str) -> None:
    assert counted(n, *words) == expected
