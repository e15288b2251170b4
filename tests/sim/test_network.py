"""The simulated network delays, loses, doubles and reorders as configured, and never breaks a byte stream otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from viewstamp.host.interfaces import Connection, Listener
from viewstamp.sim.loop import SimulatedLoop, SimulatedProcess
from viewstamp.sim.network import LinkOptions, SimulatedNetwork, is_peer_frame
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame


class Heard:
    """A handler that keeps the received chunks."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.chunks: list[bytes] = []
        self.closed: list[BaseException | None] = []

    def on_bytes(self, data: bytes) -> None:
        self.chunks.append(data)

    def on_closed(self, error: BaseException | None) -> None:
        self.closed.append(error)


class World:
    """Two nodes: n1 connects and n2 listens."""

    def __init__(self, seed: int = 1, options: LinkOptions | None = None) -> None:
        self.loop = SimulatedLoop(seed)
        self.network = SimulatedNetwork(self.loop, options=options, give_up_seconds=30)
        self.n1 = self.loop.process("n1")
        self.n2 = self.loop.process("n2")
        self.theirs: list[Heard] = []
        self.mine: list[Heard] = []

    def run(self, process: SimulatedProcess, coroutine: Coroutine[Any, Any, Any]) -> Any:
        task = process.spawn(coroutine)
        assert self.loop.run_until(task.done, seconds=1000)
        return task.result()

    def listen(self) -> Listener:
        listener: Listener = self.run(self.n2, self.network.view("n2").listen("n2:7001", self._keep(self.theirs)))
        return listener

    def connect(self) -> Connection:
        connection: Connection = self.run(self.n1, self.network.view("n1").connect("n2:7001", self._keep(self.mine)))
        self.loop.run_for(1)
        return connection

    @staticmethod
    def _keep(where: list[Heard]) -> Callable[[Connection], Heard]:
        def accept(connection: Connection) -> Heard:
            where.append(Heard(connection))
            return where[-1]

        return accept


@pytest.fixture(name="world")
def _world() -> Iterator[World]:
    world = World()
    world.listen()
    yield world
    world.loop.close()


def _peer(number: int) -> bytes:
    return b"".join(encode_frame(FrameKind.PEER, number))


def _request(number: int) -> bytes:
    return b"".join(encode_frame(FrameKind.APPEND, number))


def test_only_chunks_that_begin_with_a_peer_frame_are_datagrams() -> None:
    assert is_peer_frame(_peer(1))
    assert not is_peer_frame(_request(1))
    assert not is_peer_frame(b"short")


def test_chunks_arrive_whole_and_in_order_whatever_their_delays(world: World) -> None:
    connection = world.connect()
    world.network.options = LinkOptions(delay_mean=0.5)
    chunks = [bytes([number]) * 1000 for number in range(50)]
    for chunk in chunks:
        connection.send([chunk[:300], memoryview(chunk)[300:]])
    world.loop.run_for(100)
    assert world.theirs[0].chunks == chunks


def test_a_split_chunk_is_still_the_same_stream(world: World) -> None:
    connection = world.connect()
    world.network.options = LinkOptions(split=0.5)
    for number in range(50):
        connection.send([_request(number)])
    world.loop.run_for(10)
    assert b"".join(world.theirs[0].chunks) == b"".join(_request(number) for number in range(50))
    assert len(world.theirs[0].chunks) > 60


def test_a_late_datagram_never_stands_inside_a_chunk_that_is_split(world: World) -> None:
    """The network must not tear a stream inside a frame, because the decoder would then wait for ever for the rest."""
    connection = world.connect()
    world.network.options = LinkOptions(delay_mean=0.05, split=0.5, reorder=0.5, reorder_seconds=0.5)
    for number in range(200):
        connection.send([_request(number)])
        connection.send([_peer(number)])
        world.loop.run_for(0.02)
    world.loop.run_for(10)
    decoder = FrameDecoder(1 << 20)
    frames = [frame for chunk in world.theirs[0].chunks for frame in decoder.feed(chunk)]
    assert sorted(frame.body for frame in frames if frame.kind == FrameKind.PEER) == list(range(200))
    assert [frame.body for frame in frames if frame.kind == FrameKind.APPEND] == list(range(200))


def test_datagrams_are_dropped_doubled_and_reordered_and_other_chunks_are_not(world: World) -> None:
    connection = world.connect()
    world.network.set_link("n1", "n2", LinkOptions(drop=0.2, double=0.2, reorder=0.3))
    for number in range(200):
        connection.send([_peer(number)])
        connection.send([_request(number)])
        world.loop.run_for(0.01)
    world.loop.run_for(10)
    chunks = world.theirs[0].chunks
    datagrams = [chunk for chunk in chunks if is_peer_frame(chunk)]
    sent = [_peer(number) for number in range(200)]
    assert [chunk for chunk in chunks if not is_peer_frame(chunk)] == [_request(number) for number in range(200)]
    assert len(set(datagrams)) < 200
    assert len(datagrams) > len(set(datagrams))
    order = [sent.index(chunk) for chunk in datagrams]
    assert order != sorted(order)


def test_a_one_way_partition_stops_one_direction_and_healing_delivers_the_waiting_chunks(world: World) -> None:
    connection = world.connect()
    world.network.partition("n1", "n2")
    connection.send([_peer(1)])
    connection.send([_request(1)])
    world.theirs[0].connection.send([b"the other way"])
    world.loop.run_for(5)
    assert world.theirs[0].chunks == []
    assert world.mine[0].chunks == [b"the other way"]
    world.network.heal("n1", "n2")
    connection.send([_request(2)])
    world.loop.run_for(5)
    assert world.theirs[0].chunks == [_request(1), _request(2)], "the datagram is lost, the stream is not"


def test_a_partition_that_lasts_breaks_the_connection_at_the_sender_first(world: World) -> None:
    connection = world.connect()
    world.network.partition("n1", "n2")
    connection.send([_request(1)])
    world.loop.run_for(31)
    assert [type(error) for error in world.mine[0].closed] == [TimeoutError]
    assert world.theirs[0].closed == []
    world.network.heal()
    world.loop.run_for(1)
    assert [type(error) for error in world.theirs[0].closed] == [ConnectionResetError]
    assert world.theirs[0].chunks == []


def test_an_orderly_close_in_a_partition_arrives_after_healing(world: World) -> None:
    connection = world.connect()
    world.network.partition("n1", "n2")
    connection.send([b"last words"])
    connection.close()
    world.loop.run_for(1)
    assert world.mine[0].closed == [None]
    assert world.theirs[0].closed == []
    world.network.heal()
    world.loop.run_for(1)
    assert world.theirs[0].chunks == [b"last words"]
    assert world.theirs[0].closed == [None]


def test_a_killed_node_ends_its_connections_and_its_address_refuses(world: World) -> None:
    world.connect()
    world.n2.kill()
    world.loop.run_for(1)
    assert [type(error) for error in world.mine[0].closed] == [ConnectionResetError]
    assert world.theirs[0].closed == [], "a dead process receives nothing"
    with pytest.raises(ConnectionRefusedError):
        world.connect()
    world.n2 = world.loop.process("n2")
    world.listen()
    world.connect()
    assert len(world.theirs) == 2


def test_an_isolated_node_dies_without_a_reset_until_it_is_back(world: World) -> None:
    connection = world.connect()
    world.network.isolate("n2", ["n1"])
    world.n2.kill()
    connection.send([_peer(1)])
    world.loop.run_for(20)
    assert world.mine[0].closed == []
    world.network.heal()
    world.loop.run_for(1)
    assert [type(error) for error in world.mine[0].closed] == [ConnectionResetError]


def test_connecting_into_a_partition_waits_for_it_to_heal_and_gives_up_at_last(world: World) -> None:
    world.network.partition("n2", "n1")
    world.loop.call_later(5, world.network.heal)
    world.connect()
    world.network.partition("n2", "n1")
    before = world.loop.time()
    with pytest.raises(TimeoutError):
        world.connect()
    assert world.loop.time() - before == pytest.approx(30, abs=0.1)


def test_a_broken_connection_ends_both_sides_with_an_error(world: World) -> None:
    world.connect()
    world.network.break_connections("n2", "n1")
    world.loop.run_for(1)
    for heard in (*world.mine, *world.theirs):
        assert [type(error) for error in heard.closed] == [ConnectionResetError]


def test_with_breaking_links_a_prefix_of_the_sent_chunks_arrives(world: World) -> None:
    world.network.options = LinkOptions(break_connection=0.05, split=0.3)
    for _ in range(20):
        connection = world.connect()
        for number in range(40):
            connection.send([_request(number)])
        world.loop.run_for(1)
        arrived = b"".join(world.theirs[-1].chunks)
        assert b"".join(_request(number) for number in range(40)).startswith(arrived)
        assert len(world.mine[-1].closed) == len(world.theirs[-1].closed)


def test_a_slow_link_shows_in_unsent_bytes_and_drain_waits_for_it(world: World) -> None:
    connection = world.connect()
    world.network.options = LinkOptions(bytes_per_second=1_000_000)
    for _ in range(20):
        connection.send([bytes(100_000)])
    assert connection.unsent_bytes > 1_000_000
    before = world.loop.time()
    world.run(world.n1, connection.drain())
    assert 1.5 < world.loop.time() - before < 2
    assert connection.unsent_bytes <= 64 * 1024


def test_a_paused_process_later_receives_the_chunks_that_arrived_meanwhile(world: World) -> None:
    connection = world.connect()
    world.n2.pause()
    connection.send([b"one"])
    connection.send([b"two"])
    world.loop.run_for(5)
    assert world.theirs[0].chunks == []
    world.n2.resume()
    world.loop.run_for(0)
    assert world.theirs[0].chunks == [b"one", b"two"]


def test_handlers_run_in_the_process_that_made_them(world: World) -> None:
    seen: list[object] = []

    async def main() -> None:
        await asyncio.sleep(0)

    world.connect()
    world.theirs[0].on_bytes = lambda data: seen.append(world.loop.create_task(main()))  # type: ignore[method-assign]
    world.mine[0].connection.send([b"x"])
    world.loop.run_for(1)
    assert seen[0] in world.n2._tasks


def test_the_same_seed_gives_the_same_network() -> None:
    def digest(seed: int) -> str:
        world = World(seed, LinkOptions(drop=0.1, double=0.1, reorder=0.1, break_connection=0.01))
        world.listen()
        for _ in range(5):
            connection = world.connect()
            for number in range(50):
                connection.send([_peer(number)])
                connection.send([_request(number)])
        world.loop.run_for(10)
        world.loop.close()
        return world.loop.trace.digest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
