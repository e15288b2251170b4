"""One client keeps 1,024 records of 4 KiB in flight: how many megabytes a second?

As ``pipelined.py``, but the number of bytes matters here. Each byte is sent twice, written three times and synced by
two nodes before the response, on one machine with one disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.rows.pipeline import measure_pipelined
from benchmarks.rows.row import Goal, Options, Row, RowResult

__all__ = ["ROW"]

_IN_FLIGHT = 1024
_VALUE = os.urandom(4096)


async def _measure(options: Options, directory: Path) -> RowResult:
    megabytes = len(_VALUE) / 1e6
    return await measure_pipelined(options, directory, _VALUE, in_flight=_IN_FLIGHT, unit="MB/s", per_record=megabytes)


ROW = Row(
    name="large",
    title="4 KiB records, pipelined",
    unit="MB/s",
    goals=[Goal(subject=Ours.name, peer=Nats.name, at_least=4.5)],
    measure=_measure,
    compares="megabytes a second of one client with 1,024 records of 4 KiB in flight; each system alone on the machine",
    rounds=5,
)
