"""256 callers append 256 B each in one total order: streams of groups with ordered appends, beside logs of one leader.

A partition of Kafka and a stream of JetStream have one leader, which writes all records, so each append is ordered. An
ordered append of viewstamp is committed by the group of its stream, and then gets its global position from group 0. So
one more commit is in its way, and on three servers with two cores nothing is gained by several leaders.

Expected: one group takes a third of the rate of appends without an order, because a caller waits for two commits and
four more messages. That is near the peers with one connection, whose rounds are longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.nats import Nats
from benchmarks.peers.ours import Ours
from benchmarks.peers.peer import Peer, Session
from benchmarks.rows.appends import VALUE, append_side
from benchmarks.rows.row import Goal, Options, Row, RowResult
from benchmarks.rows.turns import alternate
from viewstamp.bench.cluster import WAIT_SECONDS

__all__ = ["ROW", "OursOrdered"]

_CALLERS = 256
_GROUPS = 3
_TOPIC = "ordered"


class OursOrdered(Ours):
    """Three nodes with a topic whose streams are in groups of their own, and ordered appends."""

    def __init__(self, groups: int) -> None:
        """``groups``: each has one stream."""
        super().__init__()
        self.name = f"viewstamp, {groups} group{'' if groups == 1 else 's'}"  # type: ignore[misc]
        self._groups = groups

    async def start(self, directory: Path) -> None:
        """Start the nodes, place the groups, and create the topic. See :class:`Peer`."""
        await super().start(directory)
        async with self.cluster.target.connect() as client:
            for number in range(self._groups):
                await client.place_group(f"stream-{number}")
            await self.cluster.wait_until(self._serve, WAIT_SECONDS, "groups have no leader")
            await client.create_spread_topic(_TOPIC, self._groups)
            await client.balance_leaders()
            for stream in range(1, self._groups + 1):
                receipt = await client.append(_TOPIC, b"first", stream=stream, ordered=True)
        self.durability = f"{receipt.durability}, by the stream and then by group 0"

    async def connect_to(self, server: str) -> Session:
        """Return a client; ``server`` is ignored, as by :class:`Ours`."""
        client = self.cluster.target.connect()
        session = Session(partial(client.append, _TOPIC, ordered=True), client.close)
        try:
            await client.append(_TOPIC, b"first", ordered=True)
        except BaseException:
            await client.close()
            raise
        return session

    def _serve(self, found: Mapping[str, Any]) -> bool:
        return all(
            not node.get("not_ready") and len(node.get("hosted") or []) == self._groups for node in found["nodes"]
        )


async def _measure(options: Options, directory: Path) -> RowResult:
    result = RowResult(subjects=[])
    peers: list[Callable[[], Peer]] = [partial(OursOrdered, _GROUPS), partial(OursOrdered, 1), Nats, Kafka]
    sides = [append_side(peer(), directory, options, result, _CALLERS) for peer in peers]
    await alternate(sides, options, result, "/s")
    return result


ROW = Row(
    name="ordered",
    title="256 callers, 256 B, in one total order",
    unit="/s",
    goals=[Goal(subject=f"viewstamp, {_GROUPS} groups", peer=peer, at_least=1.0) for peer in (Nats.name, Kafka.name)],
    measure=_measure,
    compares=(
        "records a second of callers that each await their place in one order: ordered appends over streams of groups, "
        "beside one partition and one stream of the peers"
    ),
)
assert len(VALUE) == 256, "the title has its length"
