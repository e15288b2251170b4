"""64 callers append 256 B each, over 1, 8 and 64 sessions: how many records a second?

Every caller awaits its append before the next. All callers are tasks of one process, and the servers are processes of
their own. NATS, PostgreSQL and Redis get as many connections as viewstamp has sessions.

Expected: with one session 64 records share a batch, a frame and a sync, so that the cost of a round, about 2 ms of
processor in four processes, is divided by 64. With 64 sessions each record is a batch of its own.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.postgres import Postgres
from benchmarks.peers.pysyncobj import PySyncObj
from benchmarks.peers.redis import Redis
from benchmarks.peers.rqlite import Rqlite
from benchmarks.rows.appends import COMPARES, measure_appends, session_goals
from benchmarks.rows.row import Options, Row, RowResult

__all__ = ["ROW"]

_CALLERS = 64


async def _measure(options: Options, directory: Path) -> RowResult:
    others = [Etcd(), Kafka(), Rqlite(), PySyncObj(), PySyncObj(sync=True)]
    by_sessions = [Postgres(), Redis()]
    return await measure_appends(options, directory, callers=_CALLERS, by_sessions=by_sessions, others=others)


ROW = Row(
    name="append-64",
    title="64 callers, 256 B",
    unit="/s",
    compares=COMPARES,
    goals=session_goals({1: 2.5, 8: 2.0, 64: 1.8}),
    measure=_measure,
    rounds=5,
)
