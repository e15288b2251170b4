"""The write latency that a member reports to the leader."""

from __future__ import annotations

from viewstamp.node.health.latency import LatencyGauge


def told(gauge: LatencyGauge, now: float) -> tuple[object, object]:
    status = gauge.status(now)
    return status["loop_lag_ms"], status["write_ms"]


def test_the_worst_latency_of_the_last_seconds_is_reported_and_then_forgotten() -> None:
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


def test_a_pending_write_counts_with_its_duration_so_far() -> None:
    gauge = LatencyGauge()
    gauge.writing.extend((10.0, 10.5))
    assert told(gauge, 13.0) == (0.0, 3000.0)
    gauge.ended_write(13.0)
    assert told(gauge, 13.1) == (0.0, 3000.0)
    gauge.ended_write(13.2)
    assert told(gauge, 23.5) == (0.0, 0.0)
