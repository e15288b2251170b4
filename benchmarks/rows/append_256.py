"""256 callers append 256 B each, over 1, 8 and 64 sessions.

As ``append_64.py``, with four times the callers. Batches are four times as large, so the cost of a batch matters less.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.redis import Redis
from benchmarks.rows.appends import COMPARES, measure_appends, session_goals
from benchmarks.rows.row import Options, Row, RowResult

__all__ = ["ROW"]

_CALLERS = 256


async def _measure(options: Options, directory: Path) -> RowResult:
    return await measure_appends(options, directory, callers=_CALLERS, by_sessions=[Redis()], others=[Etcd(), Kafka()])


ROW = Row(
    name="append-256",
    title="256 callers, 256 B",
    unit="/s",
    compares=COMPARES,
    goals=session_goals({1: 3.5, 64: 2.2}),
    measure=_measure,
    rounds=5,
)
