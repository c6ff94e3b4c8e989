"""Student's t distribution with a whole number of degrees of freedom, which has a closed form.

Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: with theta = atan(t / sqrt(n)),

    P(|T| <= t) = 2/pi (theta + sin cos (1 + 2/3 cos^2 + 2 4/(3 5) cos^4 + ...))   n odd, powers up to n - 3
                = sin (1 + 1/2 cos^2 + 1 3/(2 4) cos^4 + ...)                        n even, powers up to n - 2
"""

import math


def within(t: float, degrees: int) -> float:
    """The probability of a value between -t and t, t >= 0."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = 1.0, 0.0
    for k in range(1, (degrees - odd) // 2 + 1):
        total += term
        term *= (2 * k - 1 + odd) / (2 * k + odd) * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
    return math.sin(angle) * total


def bound(share: float, degrees: int) -> float:
    """The t for which a value is between -t and t with the probability `share` < 1: 0.95 for an interval of 95 %."""
    low, high = 0.0, 1.0
    while within(high, degrees) < share:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if within(middle, degrees) >= share else (middle, high)
    return high
