"""How much one site can do to the average: the number of images it announces, and its update, are its word only.

No site counts with more images than ten times the median of all sites', nor, where there are three or more, than all
others together (or it counts with as many as the administrator says); and none moves the prompt further than ten times
the median of a round's updates, or than the prompt is long, whichever is more. What is beyond is cut, and said. Of two
in the middle the median is the smaller: of two sites, one cannot raise it.

Honest sites stay below, or near. Of Fed-ISIC2019's six, the largest has 5.5 times the median of images, which is 53 %
of all: it would count with 50 %. In the preset `demo` the
longest update of a round was 1.3 to 5.6 times the median in 47 of 48 rounds (FedOTP and PromptFL, two ways to divide
the images, learning rate 0.001 with 1 epoch and 0.1 with 1 and 5, four rounds each), and 11.5 times in one, PromptFL's
first at 0.1. Nothing fixed would do: at 0.001 the longest was 0.01 to 0.4 times as long as the prompt, at 0.1 it was
0.3 to 48 times. (Measured once, by hand.)
"""

from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The one in the middle, the smaller of two; 0 of none."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def most_images(announced: Iterable[int], times: float, max_images: int) -> int:
    """With how many images a site may count; `max_images` is the administrator's word, 0 for none."""
    known = sorted(n for n in announced if n)
    most = int(times * median(known))
    if len(known) > 2:
        most = min(most, sum(known[:-1]))
    return max_images or max(1, most)


def furthest(moved: Iterable[float], size: float, times: float) -> float:
    """How far an update may move a prompt of length `size` where the updates of the round moved it so far."""
    return max(size, 1.0, times * median(moved))
