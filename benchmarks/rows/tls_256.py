"""The cost of TLS for small records: the same load with and without it, in turns.

With TLS each byte is encrypted and decrypted three times: from the client to the leader, and from there to each
follower. On this kind of machine all of that shares two cores with everything else.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.ours import Ours, OursWithTls
from benchmarks.rows.appends import VALUE, append_side
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import alternate

__all__ = ["ROW"]

_CALLERS = 256
_SESSIONS = 8


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    sides = [
        append_side(peer, directory, options, result, _CALLERS, sessions=[_SESSIONS])
        for peer in (Ours(), OursWithTls())
    ]
    await alternate(sides, options, result, "/s")
    return result


ROW = Row(
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
    measure=_measure,
    compares="records a second of 256 callers over 8 sessions, with mutual TLS on every connection and without",
    rounds=5,
)
