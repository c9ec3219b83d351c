"""bench_stats against printed tables and examples worked by hand."""

import math
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench_stats


@pytest.mark.parametrize(
    "p, df, expected",  # any printed table of Student's t
    [
        (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 4, 2.776), (0.975, 9, 2.262), (0.975, 30, 2.042),
        (0.95, 1, 6.314), (0.95, 9, 1.833), (0.99, 9, 2.821), (0.995, 9, 3.250), (0.95, 120, 1.658),
        (0.5, 7, 0.0), (0.025, 9, -2.262),
    ],
)
def test_t_quantiles_are_those_of_the_tables(p, df, expected):
    assert bench_stats.t_quantile(p, df) == pytest.approx(expected, abs=6e-4)


def test_t_distribution_where_it_has_a_closed_form():
    for t in (-3, -0.5, 0.1, 1, 20):
        assert bench_stats.t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
        assert bench_stats.t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


def test_holm_as_worked_by_hand():
    # sorted 0.01 0.02 0.03 0.04: ×4 = 0.04, ×3 = 0.06, ×2 = 0.06, ×1 = 0.04 but never below 0.06
    assert bench_stats.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert bench_stats.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert bench_stats.holm([]) == []


def test_ratio_as_worked_by_hand():
    # logs of the ratios are 0.1, 0.2, 0.3: mean 0.2, standard error 0.1 / sqrt(3), t(0.975, 2) = 4.3027
    bases = [10.0, 20.0, 5.0]
    found = bench_stats.ratio([b * math.exp(x) for b, x in zip(bases, (0.1, 0.2, 0.3))], bases, margin=1.0)
    half = 4.30265 * 0.1 / math.sqrt(3)
    assert found.mean == pytest.approx(math.exp(0.2))
    assert found.low == pytest.approx(math.exp(0.2 - half), rel=1e-5)
    assert found.high == pytest.approx(math.exp(0.2 + half), rel=1e-5)
    # t = 0.2 / 0.057735 = 3.4641 with 2 degrees: 0.5 - t / (2 sqrt(2 + t^2)) = 0.0371
    assert found.p_worse == pytest.approx(0.0371, abs=1e-4)
    assert found.p_holds == pytest.approx(1 - 0.0371, abs=1e-4)


def test_ratio_needs_pairs_and_costs():
    assert bench_stats.ratio([1.0], [1.0]) is None
    with pytest.raises(ValueError):
        bench_stats.ratio([1.0, 2.0], [1.0])
    with pytest.raises((ValueError, ZeroDivisionError)):
        bench_stats.ratio([1.0, 0.0], [1.0, 1.0])


def test_equal_runs_are_neither_worse_nor_better():
    found = bench_stats.ratio([2.0, 2.0, 2.0], [2.0, 2.0, 2.0])
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)
    assert found.p_worse == 1.0 and found.p_holds == 0.0


def test_interval_covers_the_truth_as_often_as_it_says():
    source = random.Random(7)
    covered = 0
    for _ in range(1000):
        bases = [source.lognormvariate(1, 0.3) for _ in range(10)]
        values = [base * 1.02 * source.lognormvariate(0, 0.05) for base in bases]
        found = bench_stats.ratio(values, bases)
        covered += found.low <= 1.02 <= found.high
    assert 920 <= covered <= 980


def test_geometric_mean():
    assert bench_stats.geometric_mean([1, 2, 4]) == pytest.approx(2)
