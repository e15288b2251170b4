"""Builds the input of a host as a log would: batches of commands with indexes; and reads the answers."""

from __future__ import annotations

from typing import Any

from viewstamp.actors.replicated import ActorHost
from viewstamp.ids import Index, Position, Term
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import decode_result, encode_arguments, encode_command

START = 1_700_000_000_000_000
Call = tuple[Any, ...]
"""(actor, key, method, *arguments)"""


def batch_of(index: int, *calls: Call, version: int = 1, log_time: int | None = None) -> Batch:
    """Return a committed batch; its first command has ``index``."""
    values = [encode_command(actor, key, version, method, args, {}) for actor, key, method, *args in calls]
    batch = build_batch(values, kind=Kind.COMMANDS)
    batch.stamp(
        term=Term(1),
        first_index=Index(index),
        previous_term=Term(1),
        log_time=START + index if log_time is None else log_time,
        first_position=Position(0),
    )
    return batch


def apply(host: ActorHost, index: int, *calls: Call, version: int = 1) -> list[bytes]:
    """Apply calls as one batch and return their packed results."""
    batch = batch_of(index, *calls, version=version)
    return host.apply(batch, host.decode(batch))


def call(host: ActorHost, index: int, *call: Any, version: int = 1) -> Any:
    """Apply one call; return its result, or raise its error."""
    (result,) = apply(host, index, call, version=version)
    return decode_result(result)


def ask(host: ActorHost, actor: str, key: str, method: str, *arguments: Any) -> Any:
    """Run a query."""
    return decode_result(host.query(actor, key, method, encode_arguments(list(arguments), {})))


def pieces_of(host: ActorHost, bytes_max: int = 1 << 20) -> list[bytes]:
    """Take a cut and return all of its pieces."""
    cut = host.begin_cut()
    pieces = []
    while (piece := cut.next_piece(bytes_max)) is not None:
        pieces.append(piece)
    cut.close()
    return pieces
