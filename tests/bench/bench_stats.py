"""Paired ratios and what may be said of them: Student's t, one-sided tests, Holm's correction.

Pure functions over numbers; no runs, no files. Ratios are treated as logarithms, so that "twice" and
"half" weigh the same. Worse always means greater here: callers turn calls per second round.

Failure modes: fewer than two pairs have no interval (None); values of zero or less are ValueErrors,
since a cost of nothing was not measured.
"""

import math
from typing import NamedTuple

CONFIDENCE = 0.95
MARGIN = 1.03  # what "not worse by more than 3 %" means as a ratio


def _beta_fraction(x, a, b):
    """Continued fraction of the incomplete beta function (Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 + step * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + step / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def incomplete_beta(x, a, b):
    """I_x(a, b), regularized."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def t_cdf(t, df):
    """P(T <= t) for Student's t."""
    tail = incomplete_beta(df / (df + t * t), df / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


def t_quantile(p, df):
    """The t below which a share p of Student's distribution lies, by bisection."""
    low, high = -1e7, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        if t_cdf(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class Ratio(NamedTuple):
    mean: float  # geometric mean of the pairs' ratios
    low: float  # of the 95 % interval
    high: float
    pairs: int
    p_worse: float  # of "it is not worse by more than the margin", when it seems worse
    p_holds: float  # of "it is worse by more than the margin", when it seems not


def one_sided(logs, at):
    """P of a mean so far above `at`, were the true mean `at` (t-test)."""
    n = len(logs)
    mean = math.fsum(logs) / n
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1) / n)
    if error == 0:
        return 0.5 if mean == at else 0.0 if mean > at else 1.0
    return 1 - t_cdf((mean - at) / error, n - 1)


def ratio(values, bases, margin=MARGIN):
    """The paired ratio values / bases, pair by pair; None for fewer than two pairs."""
    if len(values) != len(bases):
        raise ValueError("values and bases must come in pairs")
    if len(values) < 2:
        return None
    logs = [math.log(value / base) for value, base in zip(values, bases)]
    n, mean = len(logs), math.fsum(logs) / len(logs)
    error = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (n - 1) / n)
    half = t_quantile((1 + CONFIDENCE) / 2, n - 1) * error
    worse = one_sided(logs, math.log(margin))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n, worse, 1 - worse)


def holm(ps):
    """Holm's adjusted p-values, in the order given: compare each with the level itself."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


def geometric_mean(values):
    return math.exp(math.fsum(map(math.log, values)) / len(values))
