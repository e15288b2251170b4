"""Swarms that several tests run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from viewstamp.sim.swarm import Swarm


def whole_and_short_logs(faults: Mapping[str, float], *, seconds: float) -> dict[str, Swarm]:
    """Return a swarm that keeps its whole log, and one whose log is bounded and trimmed, by name."""
    whole = Swarm(actors=1, sinks=1, topics=2, faults=faults, seconds=seconds)
    small = {"segment_bytes": 8 * 1024, "snapshot_bytes": 16 * 1024, "retain_bytes": 4096, "bytes_max": 512 * 1024}
    return {"whole logs": whole, "short logs": replace(whole, **small)}  # type: ignore[arg-type]  # all are integers
