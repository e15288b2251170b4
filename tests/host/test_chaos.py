"""A host that is controlled by a file: without faults it is the real one, and each fault has its described effect."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from viewstamp.errors import ConfigError, StorageFullError
from viewstamp.host.chaos import Chaos, Fault, FaultKind, read_faults, write_faults
from viewstamp.host.clock import RealClock
from viewstamp.host.conformance import DISK_BEHAVIOURS, NETWORK_BEHAVIOURS
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Connection, Disk, Host, Network
from viewstamp.host.network import RealNetwork

MIB = 1024 * 1024
FULL = Fault(kind=FaultKind.FILL_DISK)


def real_host() -> Host:
    return Host(RealClock(), RealDisk(), RealNetwork(), random.Random(1))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # it watches a file
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("behaviour", DISK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_disk_conforms(behaviour: Callable[[Disk, str], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    async def main() -> None:
        await behaviour(Chaos(str(tmp_path), real_host()).host.disk, str(tmp_path))

    asyncio.run(main())


@pytest.mark.parametrize("behaviour", NETWORK_BEHAVIOURS, ids=lambda each: each.__name__)
def test_the_network_conforms(behaviour: Callable[[Network], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    async def main() -> None:
        await behaviour(Chaos(str(tmp_path), real_host()).host.network)

    asyncio.run(main())


class Handler:
    def __init__(self) -> None:
        self.ended: list[BaseException | None] = []

    def accept(self, connection: Connection) -> Handler:
        return self

    def on_bytes(self, data: bytes) -> None:
        pass

    def on_closed(self, error: BaseException | None) -> None:
        self.ended.append(error)


async def test_a_peer_is_cut_off_while_others_are_not_and_reached_again_after_the_fault(tmp_path: Path) -> None:
    chaos = Chaos(str(tmp_path), real_host())
    host = chaos.host
    accepting, here, there = Handler(), Handler(), Handler()
    far = await host.network.listen("127.0.0.1:0", accepting.accept)
    near = await host.network.listen("127.0.0.1:0", accepting.accept)
    await host.network.connect(far.address, here.accept)
    other = await host.network.connect(near.address, there.accept)
    write_faults(str(tmp_path), [Fault(kind=FaultKind.PARTITION, peers={"n2": far.address})])
    await until(lambda: len(here.ended) == len(accepting.ended) == 1)
    assert chaos.describe() == [{"fault": "partition", "peers": ["n2"], "ms": 0, "until": 0.0}]
    with pytest.raises(ConnectionRefusedError, match="viewstamp chaos partition"):
        await host.network.connect(far.address, here.accept)
    assert there.ended == []
    write_faults(str(tmp_path), [])
    await until(lambda: not chaos.faults)
    again = await host.network.connect(far.address, here.accept)
    for connection in (again, other):
        connection.abort()
    for listener in (far, near):
        await listener.close()


class Noting(Handler):
    """Notes the bytes and the time at which they arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[float, bytes]] = []

    def accept(self, connection: Connection) -> Noting:
        return self

    def on_bytes(self, data: bytes) -> None:
        self.received.append((time.monotonic(), bytes(data)))

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.received)


async def test_delayed_bytes_arrive_late_in_order_and_before_the_end(tmp_path: Path) -> None:
    chaos = Chaos(str(tmp_path), real_host())
    far, here = Noting(), Handler()
    listener = await chaos.host.network.listen("127.0.0.1:0", far.accept)
    connection = await chaos.host.network.connect(listener.address, here.accept)
    write_faults(str(tmp_path), [Fault(kind=FaultKind.DELAY, peers={"n2": listener.address}, milliseconds=100)])
    await until(lambda: chaos.faults)
    started = time.monotonic()
    connection.send([b"one ", b"two "])
    write_faults(str(tmp_path), [])
    chaos.describe()
    connection.send([b"three"])  # The delay is over, but these bytes stay behind the others.
    connection.close()
    await until(lambda: far.ended)
    assert far.data == b"one two three"
    assert far.received[0][0] - started >= 0.09
    await listener.close()


async def test_a_delay_concerns_only_its_peers_and_neither_cuts_nor_slows_the_disk(tmp_path: Path) -> None:
    chaos = Chaos(str(tmp_path), real_host())
    far, here = Noting(), Handler()
    listener = await chaos.host.network.listen("127.0.0.1:0", far.accept)
    write_faults(str(tmp_path), [Fault(kind=FaultKind.DELAY, peers={"n2": "127.0.0.1:1"}, milliseconds=60_000)])
    await until(lambda: chaos.faults)
    assert (chaos.blocked, chaos.sync_seconds) == (set(), 0)
    connection = await chaos.host.network.connect(listener.address, here.accept)
    connection.send([b"now"])
    await until(lambda: far.data == b"now")
    connection.abort()
    await until(lambda: here.ended)
    await listener.close()


async def test_an_aborted_connection_drops_its_delayed_bytes(tmp_path: Path) -> None:
    chaos = Chaos(str(tmp_path), real_host())
    far, here = Noting(), Handler()
    listener = await chaos.host.network.listen("127.0.0.1:0", far.accept)
    connection = await chaos.host.network.connect(listener.address, here.accept)
    write_faults(str(tmp_path), [Fault(kind=FaultKind.DELAY, peers={"n2": listener.address}, milliseconds=60_000)])
    await until(lambda: chaos.faults)
    connection.send([b"never"])
    connection.abort()
    await until(lambda: far.ended and here.ended)
    assert far.data == b""
    await listener.close()


async def test_a_full_disk_has_little_free_and_accepts_only_preallocated_bytes(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/segment", create=True)
    file.write(0, [bytes(100)])
    write_faults(str(tmp_path), [FULL])
    chaos = Chaos(str(tmp_path), real_host())  # A restarted node obeys from the beginning.
    full = chaos.host.disk
    assert full.free_bytes(str(tmp_path)) == 16 * MIB
    inside = full.open(f"{tmp_path}/segment")
    inside.write(90, [b"0123456789"])
    assert full.free_bytes(str(tmp_path)) == 16 * MIB
    inside.write(95, [b"01234", b"56789"])
    assert full.free_bytes(str(tmp_path)) == 16 * MIB - 5
    with pytest.raises(StorageFullError, match="No space left on device"):
        inside.write(105, [bytes(8 * MIB), bytes(8 * MIB)])
    with pytest.raises(StorageFullError, match="chaos fill-disk"):
        inside.allocate(17 * MIB)
    assert file.size() == 105
    snapshot = await full.open_async(f"{tmp_path}/snapshot", create=True)
    await snapshot.write(0, bytes(16 * MIB - 5))
    assert full.free_bytes(str(tmp_path)) == 0
    with pytest.raises(StorageFullError, match="chaos fill-disk"):
        await snapshot.write(16 * MIB - 5, b"x")
    inside.write(0, [b"x" * 105])
    write_faults(str(tmp_path), [])
    await until(lambda: not chaos.faults)
    inside.write(105, [b"x"])
    await snapshot.write(16 * MIB - 5, b"x")
    await snapshot.close()


@pytest.mark.slow  # It takes time to be sure that a disk is slow.
async def test_a_slow_disk_holds_each_sync_and_a_fault_that_ends_lets_it_go(tmp_path: Path) -> None:
    write_faults(str(tmp_path), [Fault(kind=FaultKind.SLOW_DISK, milliseconds=100)])
    chaos = Chaos(str(tmp_path), real_host())
    file = chaos.host.disk.open(f"{tmp_path}/file", create=True)
    bulk = await chaos.host.disk.open_async(f"{tmp_path}/bulk", create=True)
    started = time.monotonic()
    await asyncio.to_thread(file.sync_data)
    await asyncio.to_thread(chaos.host.disk.sync_directory, str(tmp_path))
    await bulk.sync()
    assert time.monotonic() - started >= 0.3
    write_faults(str(tmp_path), [Fault(kind=FaultKind.SLOW_DISK, milliseconds=60_000, until=time.time() + 3600)])
    await until(lambda: chaos.sync_seconds == 60)
    syncing = asyncio.create_task(asyncio.to_thread(file.sync))
    write_faults(str(tmp_path), [Fault(kind=FaultKind.SLOW_DISK, milliseconds=60_000, until=time.time() + 0.2)])
    await syncing
    await until(lambda: chaos.faults == ())
    assert chaos.sync_seconds == 0
    await bulk.close()


def test_faults_that_have_ended_are_not_read_and_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    write_faults(str(tmp_path), [FULL, Fault(kind=FaultKind.SLOW_DISK, milliseconds=5, until=time.time() - 1)])
    assert read_faults(str(tmp_path)) == [FULL]
    (tmp_path / "chaos.json").write_text('{"fault": "fire"}')
    with pytest.raises(ConfigError, match="not a list of faults"):
        read_faults(str(tmp_path))

    async def main() -> tuple[Fault, ...]:
        return Chaos(str(tmp_path), real_host()).faults

    assert asyncio.run(main()) == ()
    write_faults(str(tmp_path), [])
    assert os.listdir(tmp_path) == []
