"""A histogram stores each latency with an error of at most 0.5 %, and its memory does not depend on their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.bench.histogram import Histogram

MILLISECONDS = st.floats(min_value=0.001, max_value=1_000_000)


@given(st.lists(MILLISECONDS, min_size=1), st.integers(min_value=0, max_value=100))
def test_a_percentile_is_within_half_a_percent_of_the_exact_one(values: list[float], percent: int) -> None:
    exact = sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]
    assert Histogram(values).at(percent) == pytest.approx(exact, rel=0.0051)
    assert Histogram(values).longest == max(values)


def test_latencies_outside_the_buckets_count_in_the_first_and_the_longest_is_exact() -> None:
    histogram = Histogram([0.0, 0.0001, 5.0])
    assert (histogram.count, histogram.at(100)) == (3, 5.0)
    assert histogram.at(50) == pytest.approx(0.001, rel=0.0051)
    assert Histogram().at(99) == 0.0
