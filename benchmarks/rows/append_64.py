"""64 callers append 256 B each, over 1, 8 and 64 sessions: what does it come to beside what others would pick?

Every caller awaits its append before the next; all of them sit in one process, the servers in others. Each peer has as
many connections as is fastest for it.

What to expect. With one session 64 records share a batch, a frame and a sync, so a record costs its share of Python:
7 to 10 us in all three nodes and the client on two cores, and the goal is 4.5 times NATS, whose leader handles each
message by itself. With 64 sessions every record is a batch and a frame of its own, which costs five times as much.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.pysyncobj import PySyncObj
from benchmarks.rows.appends import measure_appends, session_goals
from benchmarks.rows.row import Options, Row, RowResult

__all__ = ["ROW"]

_CALLERS = 64


async def _measure(options: Options, directory: Path) -> RowResult:
    others = [Etcd(), Postgres(), PySyncObj(), PySyncObj(sync=True)]
    return await measure_appends(options, directory, callers=_CALLERS, others=others)


ROW = Row(
    name="append-64",
    title="64 callers, 256 B",
    unit="/s",
    goals=session_goals({1: 4.5, 8: 3.5, 64: 1.8}),
    measure=_measure,
    rounds=5,
)
