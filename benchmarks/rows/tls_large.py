"""The cost of TLS for large records: the same load with and without it, in turns.

With TLS each byte is encrypted and decrypted three times: from the client to the leader, and from there to each
follower. On this kind of machine all of that shares two cores with everything else.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.ours import Ours, OursWithTls
from benchmarks.rows.pipeline import measure_pipelined
from benchmarks.rows.row import Goal, Options, Row, RowResult

__all__ = ["ROW"]

_IN_FLIGHT = 1024
_VALUE = os.urandom(4096)


async def _measure(options: Options, directory: Path) -> RowResult:
    return await measure_pipelined(
        options,
        directory,
        _VALUE,
        in_flight=_IN_FLIGHT,
        unit="MB/s",
        per_record=len(_VALUE) / 1e6,
        peers=[Ours(), OursWithTls()],
    )


ROW = Row(
    name="tls-large",
    title="4 KiB records, pipelined, with TLS and without",
    unit="MB/s",
    goals=[Goal(subject=OursWithTls.name, peer=Ours.name, at_least=0.85)],
    measure=_measure,
    compares="megabytes a second of one client with 1,024 records of 4 KiB in flight, with mutual TLS and without",
    rounds=5,
)
