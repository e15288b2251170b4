"""How late a member says that it is."""

from __future__ import annotations

from viewstamp.node.health.latency import LatencyGauge


def told(gauge: LatencyGauge, now: float) -> tuple[object, object]:
    status = gauge.status(now)
    return status["loop_lag_ms"], status["write_ms"]


def test_the_worst_of_the_last_seconds_is_told_and_then_forgotten() -> None:
    gauge = LatencyGauge()
    gauge.ticked(100.0, 0.001)
    gauge.ticked(100.1, 0.25)
    gauge.ticked(100.2, 0.002)
    assert told(gauge, 104.0) == (250.0, 0.0)
    gauge.ticked(106.0, 0.003)
    assert told(gauge, 106.0) == (250.0, 0.0)
    gauge.ticked(111.5, 0.001)
    assert told(gauge, 111.5) == (3.0, 0.0)
    assert told(gauge, 200.0) == (0.0, 0.0)


def test_a_write_that_has_not_ended_counts_for_as_long_as_it_takes_so_far() -> None:
    gauge = LatencyGauge()
    gauge.writing.extend((10.0, 10.5))
    assert told(gauge, 13.0) == (0.0, 3000.0)
    gauge.ended_write(13.0)
    assert told(gauge, 13.1) == (0.0, 3000.0)
    gauge.ended_write(13.2)
    assert told(gauge, 23.5) == (0.0, 0.0)
