"""One client keeps 4,096 records of 256 B in flight, or 1,024 of 4 KiB: how many records, or megabytes, a second?

Nothing waits for each record. viewstamp appends groups by ``append_many``, each with one response. The other systems
get single records, in one write for all records of a turn of the loop, and answer each.

Expected: groups cost the client very little, and the nodes handle batches of up to a thousand records. The rest is
copying, checksums and the disk, 256 MB/s at a million records. The leader of NATS computes some 15 us for a message.
With 4 KiB the number of bytes matters: each byte is sent twice, written three times and synced by two nodes before the
response, on one machine with one disk.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.redis import Redis
from benchmarks.rows.appends import VALUE, plural
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import Contender, Side, Turn, alternate, open_sessions, side_of
from viewstamp.bench.load import Call, keep_going
from viewstamp.client.options import ClientOptions

__all__ = ["LARGE", "PIPELINED", "TOPIC", "fill", "measure_large", "puts_of"]

TOPIC = "pipelined"
_GROUP_BYTES = 256 * 1024
_LARGE_VALUE = os.urandom(4096)


async def puts_of(
    stack: AsyncExitStack, peer: Peer, value: bytes, in_flight: int, options: ClientOptions | None = None
) -> tuple[Call, int, str]:
    """Return the fastest way to append to a running peer: the call, the records in each call, and a description.

    viewstamp gets groups, because a user with many records would append them so. The other systems get single records
    and answer each. ``options`` are those of the client of viewstamp.
    """
    if isinstance(peer, Ours):
        client = await stack.enter_async_context(peer.cluster.target.connect(options=options))
        await client.create_topic(TOPIC)
        group = [value] * max(1, min(in_flight // 8, _GROUP_BYTES // len(value)))
        return lambda: client.append_many(TOPIC, group), len(group), f"append_many of {len(group)}"
    count = peer.sessions(in_flight)
    sessions = await stack.enter_async_context(open_sessions(peer, count))
    turn = 0

    def put() -> Awaitable[object]:
        nonlocal turn
        turn = (turn + 1) % count
        return sessions[turn].append(value)

    return put, 1, plural(count, "connection")


async def fill(peer: Peer, value: bytes, records: int, in_flight: int) -> None:
    """Append this many records, or a few more, as fast as the peer accepts them."""
    async with AsyncExitStack() as stack:
        put, each, _ = await puts_of(stack, peer, value, in_flight)
        await keep_going(put, max(1, in_flight // each), count=-(-records // each))


async def _measure(
    options: Options,
    directory: Path,
    value: bytes,
    *,
    in_flight: int,
    unit: str,
    per_record: float = 1.0,
    peers: Sequence[Peer] = (),
) -> RowResult:
    """Measure viewstamp and its peers with ``in_flight`` unanswered records; each counts as ``per_record`` units.

    ``peers``: measure these instead, all of them in each round.
    """
    result = RowResult(subjects=[])

    def side(peer: Peer, rounds: int = 0) -> Side:
        async def contenders(stack: AsyncExitStack) -> list[Contender]:
            return [await _contender(stack, peer, value, in_flight, per_record)]

        return side_of(peer, directory, options, result, contenders, rounds=rounds)

    if peers:
        await alternate([side(peer) for peer in peers], options, result, unit)
        return result
    few = min(2, options.rounds)
    sides = [side(Ours()), side(Nats()), side(Redis(), few), side(Kafka(), few)]
    await alternate(sides, options, result, unit)
    return result


async def _contender(stack: AsyncExitStack, peer: Peer, value: bytes, in_flight: int, per_record: float) -> Contender:
    put, each, how = await puts_of(stack, peer, value, in_flight)
    outstanding = max(1, in_flight // each)
    await keep_going(put, outstanding, seconds=peer.warm_up_seconds)

    async def work(seconds: float) -> Turn:
        figures = await keep_going(put, outstanding, seconds=seconds, servers=peer.cpu_used)
        return Turn.of(figures, figures.per_second * each * per_record, records=each)

    return Contender(name=peer.name, peer=peer, work=work, how=how)


async def _measure_records(options: Options, directory: Path) -> RowResult:
    return await _measure(options, directory, VALUE, in_flight=4096, unit="/s")


async def measure_large(options: Options, directory: Path, *, peers: Sequence[Peer] = ()) -> RowResult:
    """Measure 1,024 records of 4 KiB in flight; ``peers``: these only, all of them in each round."""
    megabytes = len(_LARGE_VALUE) / 1e6
    return await _measure(
        options, directory, _LARGE_VALUE, in_flight=1024, unit="MB/s", per_record=megabytes, peers=peers
    )


PIPELINED = Row(
    name="pipelined",
    title="pipelined, 4,096 of 256 B in flight",
    unit="/s",
    goals=[Goal(subject=Ours.name, peer=Nats.name, at_least=6.0)],
    measure=_measure_records,
    compares="records a second of one client with 4,096 in flight, ours in groups by append_many; each system alone",
    rounds=5,
)
LARGE = Row(
    name="large",
    title="4 KiB records, pipelined",
    unit="MB/s",
    goals=[Goal(subject=Ours.name, peer=Nats.name, at_least=4.5)],
    measure=measure_large,
    compares="megabytes a second of one client with 1,024 records of 4 KiB in flight; each system alone on the machine",
    rounds=5,
)
