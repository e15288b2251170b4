"""One client keeps 4,096 records of 256 B in flight: how many records a second?

viewstamp appends groups by ``append_many``, each with one response. The other systems get single records, in one write
for all records of a turn of the loop, and answer each.

Expected: groups cost the client very little, and the nodes handle batches of up to a thousand records. The rest is
copying, checksums and the disk, 256 MB/s at a million records. The leader of NATS computes some 15 us for a message.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.rows.appends import VALUE
from benchmarks.rows.pipeline import measure_pipelined
from benchmarks.rows.row import Goal, Options, Row, RowResult

__all__ = ["ROW"]

_IN_FLIGHT = 4096


async def _measure(options: Options, directory: Path) -> RowResult:
    return await measure_pipelined(options, directory, VALUE, in_flight=_IN_FLIGHT, unit="/s")


ROW = Row(
    name="pipelined",
    title="pipelined, 4,096 of 256 B in flight",
    unit="/s",
    goals=[Goal(subject=Ours.name, peer=Nats.name, at_least=6.0)],
    measure=_measure,
    compares="records a second of one client with 4,096 in flight, ours in groups by append_many; each system alone",
    rounds=5,
)
