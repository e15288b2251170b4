"""The cost of TLS for small and for large records: the same load with and without it, in turns.

With TLS each byte is encrypted and decrypted three times: from the client to the leader, and from there to each
follower. On this kind of machine all of that shares two cores with everything else.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.ours import Ours, OursWithTls
from benchmarks.rows.appends import VALUE, append_side
from benchmarks.rows.pipeline import measure_large
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import alternate

__all__ = ["TLS_256", "TLS_LARGE"]

_CALLERS = 256
_SESSIONS = 8


async def _measure_small(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    sides = [
        append_side(peer, directory, options, result, _CALLERS, sessions=[_SESSIONS])
        for peer in (Ours(), OursWithTls())
    ]
    await alternate(sides, options, result, "/s")
    return result


async def _measure_large(options: Options, directory: Path) -> RowResult:
    return await measure_large(options, directory, peers=[Ours(), OursWithTls()])


TLS_256 = Row(
    name="tls-256",
    title=f"256 callers, {len(VALUE)} B, with TLS and without",
    unit="/s",
    goals=[
        Goal(
            subject=f"{OursWithTls.name}, {_SESSIONS} sessions",
            peer=f"{Ours.name}, {_SESSIONS} sessions",
            at_least=0.75,
        )
    ],
    measure=_measure_small,
    compares="records a second of 256 callers over 8 sessions, with mutual TLS on every connection and without",
    rounds=5,
)
TLS_LARGE = Row(
    name="tls-large",
    title="4 KiB records, pipelined, with TLS and without",
    unit="MB/s",
    goals=[Goal(subject=OursWithTls.name, peer=Ours.name, at_least=0.85)],
    measure=_measure_large,
    compares="megabytes a second of one client with 1,024 records of 4 KiB in flight, with mutual TLS and without",
    rounds=5,
)
