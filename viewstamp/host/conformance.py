"""The required behaviours of a host, checked on the real and the simulated one, so that both keep to the interfaces.

Plain coroutine functions, one behaviour each, that raise :class:`ConformanceError`. A test runs each of them on the
event loop that belongs to the host::

    for behaviour in DISK_BEHAVIOURS: await behaviour(disk, directory)     # an empty directory for each
    for behaviour in NETWORK_BEHAVIOURS: await behaviour(network)
    for behaviour in CLOCK_BEHAVIOURS: await behaviour(clock)
    for behaviour in BOOT_BEHAVIOURS: await behaviour(boot_id)

Durability is not checked here, because only a power cut shows it. ``sim.recording`` compares the two disks in that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from viewstamp.errors import ConfigError, DirectoryInUseError, StorageError
from viewstamp.host.interfaces import Clock, Connection, ConnectionHandler, Disk, Listener, Network

__all__ = ["BOOT_BEHAVIOURS", "CLOCK_BEHAVIOURS", "DISK_BEHAVIOURS", "NETWORK_BEHAVIOURS", "ConformanceError"]

_PATIENCE = 10.0
"""Seconds after which an expected event counts as missing. Only a host that fails takes that long."""
_ANY_PORT = "127.0.0.1:0"
_FOREIGN = "192.0.2.1:7001"
"""An address that is reserved for documentation, so that no machine has it (RFC 5737)."""


class ConformanceError(AssertionError):
    """The host does not behave as ``host/interfaces.py`` requires."""


def _expect(what: str, expected: object, actual: object) -> None:
    if expected != actual:
        raise ConformanceError(f"{what}: expected {expected!r}, found {actual!r}")


def _expect_error(what: str, kinds: type[BaseException], call: Callable[[], object]) -> BaseException:
    try:
        call()
    except kinds as error:
        return error
    raise ConformanceError(f"{what}: expected {kinds.__name__}, nothing was raised")


async def _expect_error_async(
    what: str, kinds: type[BaseException], call: Coroutine[Any, Any, object]
) -> BaseException:
    try:
        await call
    except kinds as error:
        return error
    raise ConformanceError(f"{what}: expected {kinds.__name__}, nothing was raised")


# disk


async def creating_makes_an_empty_file_and_fails_where_one_exists(disk: Disk, directory: str) -> None:
    """``create`` is exclusive; opening without it needs the file to be there."""
    path = f"{directory}/file"
    _expect_error("opening a missing file", FileNotFoundError, lambda: disk.open(path))
    _expect_error("reading a missing file", FileNotFoundError, lambda: disk.open_read(path))
    _expect("exists before", False, disk.exists(path))
    file = disk.open(path, create=True)
    _expect("size", 0, file.size())
    _expect("path", path, file.path)
    _expect("exists after", True, disk.exists(path))
    _expect_error("creating it again", FileExistsError, lambda: disk.open(path, create=True))
    _expect_error("a missing directory", FileNotFoundError, lambda: disk.open(f"{directory}/no/file", create=True))
    file.close()
    file.close()
    _expect_error("use after close", StorageError, lambda: file.read(0, 1))


async def many_buffers_are_written_in_order_without_gaps(disk: Disk, directory: str) -> None:
    """More buffers than one system call takes, of every kind, some of them empty."""
    kinds: list[Callable[[bytes], bytes | bytearray | memoryview]] = [bytes, bytearray, memoryview]
    pieces = [bytes([number % 251]) * (number % 7) for number in range(2500)]
    file = disk.open(f"{directory}/file", create=True)
    file.write(100, [kinds[number % 3](piece) for number, piece in enumerate(pieces)])
    whole = b"".join(pieces)
    _expect("bytes", whole, file.read(100, len(whole)))
    _expect("size", 100 + len(whole), file.size())
    _expect("gap", bytes(100), file.read(0, 100))
    other = disk.open_read(f"{directory}/file")
    _expect("bytes read through another file", whole, other.read(100, len(whole)))
    _expect_error("writing to a file opened for reading", StorageError, lambda: other.write(0, [b"x"]))


async def reading_past_the_end_gives_fewer_bytes(disk: Disk, directory: str) -> None:
    """Fewer only at the end, none behind it."""
    file = disk.open(f"{directory}/file", create=True)
    file.write(0, [b"0123456789"])
    _expect("across the end", b"6789", file.read(6, 100))
    _expect("behind the end", b"", file.read(10, 5))
    _expect("nothing asked for", b"", file.read(3, 0))


async def overwriting_leaves_the_rest_alone(disk: Disk, directory: str) -> None:
    """A write changes its own range and nothing else, and syncs change nothing."""
    file = disk.open(f"{directory}/file", create=True)
    file.write(0, [b"a" * 10_000])
    file.sync()
    file.write(4_090, [b"b" * 10])
    file.sync_data()
    _expect("bytes", b"a" * 4_090 + b"b" * 10 + b"a" * 5_900, file.read(0, 20_000))


async def truncating_cuts_and_lengthens_with_zeros(disk: Disk, directory: str) -> None:
    """The bytes that were cut off do not come back when the file grows again."""
    file = disk.open(f"{directory}/file", create=True)
    file.write(0, [b"x" * 100])
    file.truncate(10)
    _expect("size after the cut", 10, file.size())
    file.truncate(50)
    _expect("bytes", b"x" * 10 + bytes(40), file.read(0, 100))


async def what_is_allocated_reads_as_zeros_and_what_was_written_stays(disk: Disk, directory: str) -> None:
    """Allocating a longer file adds zeros; allocating a length that the file has changes nothing."""
    file = disk.open(f"{directory}/file", create=True)
    file.write(0, [b"x" * 10])
    file.allocate(3 * 1024 * 1024)
    file.sync()
    _expect("size", 3 * 1024 * 1024, file.size())
    _expect("bytes", b"x" * 10 + bytes(3 * 1024 * 1024 - 10), file.read(0, 4 * 1024 * 1024))
    file.allocate(100)
    _expect("size where it was longer", 3 * 1024 * 1024, file.size())


async def renaming_replaces_and_open_files_stay_what_they_are(disk: Disk, directory: str) -> None:
    """A name moves immediately; an open file stays the same file."""
    first = disk.open(f"{directory}/first", create=True)
    first.write(0, [b"first"])
    second = disk.open(f"{directory}/second", create=True)
    second.write(0, [b"second"])
    disk.rename(f"{directory}/first", f"{directory}/second")
    disk.sync_directory(directory)
    _expect("names", ["second"], disk.list_directory(directory))
    _expect("under the new name", b"first", disk.open_read(f"{directory}/second").read(0, 10))
    _expect("the replaced file, still open", b"second", second.read(0, 10))
    first.write(0, [b"FIRST"])
    _expect("written through the old handle", b"FIRST", disk.open_read(f"{directory}/second").read(0, 10))
    _expect_error("renaming what is missing", StorageError, lambda: disk.rename(f"{directory}/no", f"{directory}/x"))


async def removing_takes_the_name_away(disk: Disk, directory: str) -> None:
    """And the name may be used again, for another file."""
    file = disk.open(f"{directory}/file", create=True)
    file.write(0, [b"old"])
    disk.remove(f"{directory}/file")
    _expect("exists", False, disk.exists(f"{directory}/file"))
    _expect("still open", b"old", file.read(0, 10))
    _expect("the new file", 0, disk.open(f"{directory}/file", create=True).size())
    _expect_error("removing what is missing", StorageError, lambda: disk.remove(f"{directory}/no"))


async def directories_are_made_with_parents_and_listed_in_order(disk: Disk, directory: str) -> None:
    """Twice is harmless; a directory that is not there lists as empty, and only an empty one is removed."""
    disk.make_directory(f"{directory}/b/c")
    disk.make_directory(f"{directory}/b/c")
    disk.open(f"{directory}/c", create=True).close()
    disk.open(f"{directory}/a", create=True).close()
    _expect("names", ["a", "b", "c"], disk.list_directory(directory))
    _expect("names inside", ["c"], disk.list_directory(f"{directory}/b"))
    _expect("names of nothing", [], disk.list_directory(f"{directory}/missing"))
    _expect("a directory exists", True, disk.exists(f"{directory}/b"))
    _expect_error("a file in the way", StorageError, lambda: disk.make_directory(f"{directory}/a"))
    _expect_error("removing one with a name", StorageError, lambda: disk.remove_directory(f"{directory}/b"))
    disk.remove_directory(f"{directory}/b/c")
    _expect("names after it", [], disk.list_directory(f"{directory}/b"))
    _expect_error("removing it again", StorageError, lambda: disk.remove_directory(f"{directory}/b/c"))
    disk.make_directory(f"{directory}/b/c")


async def a_directory_has_one_lock(disk: Disk, directory: str) -> None:
    """A second lock is refused until the first is released."""
    lock = disk.lock(directory)
    _expect_error("a second lock", DirectoryInUseError, lambda: disk.lock(directory))
    _expect("a lock has a holder", True, bool(disk.lock_holder(directory)))
    lock.release()
    _expect("nobody holds it any more", "", disk.lock_holder(directory))
    lock.release()
    again = disk.lock(directory)
    lock.release()
    _expect_error("a lock is released by its holder only", DirectoryInUseError, lambda: disk.lock(directory))
    again.release()
    _expect("nobody holds what is missing", "", disk.lock_holder(f"{directory}/missing"))
    _expect_error("locking what is missing", StorageError, lambda: disk.lock(f"{directory}/missing"))


async def space_and_kind_of_file_system_can_be_asked_for(disk: Disk, directory: str) -> None:
    """Both are information for people, and never empty."""
    _expect("there is space", True, disk.free_bytes(directory) > 0)
    _expect("a kind", True, bool(disk.filesystem(directory)))


async def an_asynchronous_file_is_the_same_file(disk: Disk, directory: str) -> None:
    """Created, written in any order, synced and read back, also through a blocking file; closing twice is harmless."""
    path = f"{directory}/file"
    await _expect_error_async("opening a missing file", FileNotFoundError, disk.open_async(path))
    file = await disk.open_async(path, create=True)
    _expect("path", path, file.path)
    _expect("size", 0, await file.size())
    await _expect_error_async("creating it again", FileExistsError, disk.open_async(path, create=True))
    missing = disk.open_async(f"{directory}/no/file", create=True)
    await _expect_error_async("a missing directory", FileNotFoundError, missing)
    await file.write(0, b"head")
    await file.write(4, memoryview(bytearray(b"x") * 300_000))
    await file.write(300_010, bytearray(b"tail"))
    await file.write(2, b"AD")
    await file.write(300_014, b"")
    await file.sync()
    whole = b"heAD" + b"x" * 300_000 + bytes(6) + b"tail"
    _expect("size", len(whole), await file.size())
    _expect("all of it", True, await file.read(0, 1_000_000) == whole)
    _expect("across the end", b"il", await file.read(300_012, 100))
    _expect("behind the end", b"", await file.read(len(whole), 5))
    _expect("nothing asked for", b"", await file.read(3, 0))
    _expect("through a blocking file", True, disk.open_read(path).read(0, 1_000_000) == whole)
    again = await disk.open_async(path)
    _expect("opened again", b"heAD", await again.read(0, 4))
    await again.close()
    await file.close()
    await file.close()
    await _expect_error_async("use after close", StorageError, file.read(0, 1))


async def calls_of_an_asynchronous_file_may_overlap(disk: Disk, directory: str) -> None:
    """Each has its effect, in any order; a cancelled call was carried out completely or not at all."""
    file = await disk.open_async(f"{directory}/file", create=True)
    await asyncio.gather(*(file.write(number * 1000, bytes([number]) * 1000) for number in range(20)))
    parts = await asyncio.gather(*(file.read(number * 1000, 1000) for number in range(20)))
    _expect("parts", [bytes([number]) * 1000 for number in range(20)], parts)
    cancelled = asyncio.ensure_future(file.write(5000, b"!" * 1000))
    await asyncio.sleep(0)
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    _expect("whole or not at all", True, await file.read(5000, 1000) in (bytes([5]) * 1000, b"!" * 1000))
    await file.close()


async def an_executor_does_everything_in_order_and_reports_it(disk: Disk, directory: str) -> None:
    """Each item is reported once, with the result of ``work``; ``done`` runs on the event loop."""
    worked: list[int] = []
    reported: list[int] = []
    loop = asyncio.get_running_loop()

    def work(items: list[int]) -> int:
        worked.extend(items)
        return len(items)

    def done(items: list[int], result: int | BaseException) -> None:
        _expect("the loop that reports", loop, asyncio.get_running_loop())
        _expect("the result of the same items", len(items), result)
        _expect("at least one item", True, bool(items))
        reported.extend(items)

    executor = disk.executor("test", work, done)
    for number in range(100):
        executor.put(number)
        if number % 10 == 0:
            await asyncio.sleep(0)
    await executor.close()
    executor.put(100)
    await executor.close()
    _expect("worked", list(range(100)), worked)
    _expect("reported", list(range(100)), reported)


async def an_executor_that_failed_never_works_again(disk: Disk, directory: str) -> None:
    """All items after the error are reported with the same error, because a failed sync is final."""
    worked: list[str] = []
    reported: list[tuple[str, object]] = []
    failure = StorageError("the disk is broken")
    answered = asyncio.Event()

    def work(items: list[str]) -> None:
        worked.extend(items)
        if "bad" in items:
            raise failure

    def done(items: list[str], result: BaseException | None) -> None:
        reported.extend((item, result) for item in items)
        answered.set()

    executor = disk.executor("test", work, done)
    for item in ("good", "bad"):
        answered.clear()
        executor.put(item)
        async with asyncio.timeout(_PATIENCE):
            await answered.wait()
    executor.put("behind")
    executor.put("last")
    await executor.close()
    _expect("worked", ["good", "bad"], worked)
    expected = [("good", None), ("bad", failure), ("behind", failure), ("last", failure)]
    _expect("reported", expected, reported)


async def an_executor_takes_what_is_queued_at_once(disk: Disk, directory: str) -> None:
    """Items put while ``work`` is busy or due arrive together, because group commit depends on it."""
    turns: list[int] = []

    def work(items: list[int]) -> None:
        turns.append(len(items))

    executor = disk.executor("test", work, lambda items, result: None)
    for number in range(1000):
        executor.put(number)
    await executor.close()
    _expect("items", 1000, sum(turns))
    _expect("far fewer turns than items", True, len(turns) < 500)


# network


class _Ear(ConnectionHandler):
    """A handler that keeps the bytes and ends that it receives, and lets a behaviour wait for them."""

    def __init__(self, connection: Connection, *, echo: bool = False) -> None:
        self.connection = connection
        self.heard = bytearray()
        self.ends: list[BaseException | None] = []
        self.fails: Exception | None = None
        self._echo = echo
        self._news = asyncio.Event()

    def on_bytes(self, data: bytes) -> None:
        """Keep the bytes."""
        if self.fails is not None:
            raise self.fails
        if self.ends:
            self.heard += b"<heard after the end>"
        self.heard += data
        if self._echo:
            self.connection.send([data])
        self._news.set()

    def on_closed(self, error: BaseException | None) -> None:
        """Keep the end."""
        self.ends.append(error)
        self._news.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition`` holds."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise ConformanceError(f"{what} did not come; heard {len(self.heard)} bytes, ends {self.ends}") from error

    async def hears(self, size: int) -> bytes:
        """Wait for ``size`` bytes altogether."""
        await self.until(lambda: len(self.heard) >= size, f"{size} bytes")
        return bytes(self.heard)

    async def ended(self) -> BaseException | None:
        """Wait for the end; it must be the only one."""
        await self.until(lambda: bool(self.ends), "the end")
        _expect("ends", 1, len(self.ends))
        return self.ends[0]


class _Pair:
    """A listener and one connection to it; ``open`` may be called again for another one."""

    def __init__(self, network: Network, *, echo: bool = False) -> None:
        self.network = network
        self.theirs: list[_Ear] = []
        self.mine: list[_Ear] = []
        self.listener: Listener
        self._echo = echo
        self._arrived = asyncio.Event()

    async def listen(self, address: str = _ANY_PORT) -> _Pair:
        self.listener = await self.network.listen(address, self.accept_theirs)
        return self

    async def open(self) -> tuple[_Ear, _Ear]:
        """Connect; return the handlers of both ends."""
        self._arrived.clear()
        await self.network.connect(self.listener.address, self.accept_mine)
        async with asyncio.timeout(_PATIENCE):
            await self._arrived.wait()
        return self.mine[-1], self.theirs[-1]

    async def settle(self) -> None:
        """Wait until all bytes on the way have arrived, by sending some on a later connection and back."""
        mine, theirs = await self.open()
        mine.connection.send([b"?"])
        await theirs.hears(1)
        theirs.connection.close()
        await mine.ended()
        await theirs.ended()

    async def end(self) -> None:
        """Close everything, and check that every handler got exactly one end."""
        for ear in self.mine:
            ear.connection.abort()
        for ear in (*self.mine, *self.theirs):
            await ear.ended()
        await self.listener.close()

    def accept_mine(self, connection: Connection) -> _Ear:
        """Record the connecting end of a new connection, and return its handler."""
        self.mine.append(_Ear(connection))
        return self.mine[-1]

    def accept_theirs(self, connection: Connection) -> _Ear:
        """Record the accepting end of a new connection, and return its handler."""
        self.theirs.append(_Ear(connection, echo=self._echo))
        self._arrived.set()
        return self.theirs[-1]


async def port_zero_is_replaced_by_the_port_that_was_bound(network: Network) -> None:
    """The listener has its address, and each end has the address of the other."""
    pair = await _Pair(network).listen()
    host, _, port = pair.listener.address.rpartition(":")
    _expect("host", "127.0.0.1", host)
    _expect("a real port", True, int(port) > 0)
    mine, theirs = await pair.open()
    _expect("the peer is the listener", pair.listener.address, mine.connection.peer)
    _expect("the listener's peer has a name", True, bool(theirs.connection.peer))
    await pair.end()


async def bytes_arrive_in_order_both_ways(network: Network) -> None:
    """Sends of every size and kind, large ones among them, come out as one stream."""
    pair = await _Pair(network, echo=True).listen()
    mine, theirs = await pair.open()
    parts = [bytes([number % 256]) * size for number, size in enumerate((1, 0, 70_000, 3, 2_000_000, 20, 5, 300_000))]
    for part in parts:
        mine.connection.send([part[: len(part) // 2], memoryview(part)[len(part) // 2 :]])
    mine.connection.send([])
    whole = b"".join(parts)
    _expect("there", True, await theirs.hears(len(whole)) == whole)
    _expect("and back", True, await mine.hears(len(whole)) == whole)
    await pair.end()


async def closing_sends_what_is_queued_and_ends_both_sides_in_order(network: Network) -> None:
    """An orderly close is no error on either side."""
    pair = await _Pair(network).listen()
    mine, theirs = await pair.open()
    mine.connection.send([bytes(1_000_000)])
    mine.connection.close()
    mine.connection.close()
    mine.connection.send([b"too late"])
    _expect("their end", None, await theirs.ended())
    _expect("my end", None, await mine.ended())
    _expect("all that was queued", 1_000_000, len(theirs.heard))
    mine.connection.abort()
    theirs.connection.close()
    await pair.settle()
    await pair.end()


async def aborting_ends_both_sides_at_once(network: Network) -> None:
    """The other side received a prefix of the sent bytes; each side gets one end."""
    pair = await _Pair(network).listen()
    mine, theirs = await pair.open()
    mine.connection.send([b"x" * 100_000])
    mine.connection.abort()
    mine.connection.abort()
    mine.connection.close()
    await mine.ended()
    await theirs.ended()
    _expect("a prefix", True, (b"x" * 100_000).startswith(theirs.heard))
    await pair.settle()
    await pair.end()


async def nothing_is_heard_after_ones_own_close(network: Network) -> None:
    """The other side may still be sending."""
    pair = await _Pair(network, echo=True).listen()
    mine, theirs = await pair.open()
    mine.connection.send([b"hello"])
    await mine.hears(5)
    mine.connection.send([b"answer this"])
    mine.connection.close()
    await mine.ended()
    await theirs.ended()
    await pair.settle()
    _expect("heard", b"hello", bytes(mine.heard))
    await pair.end()


async def an_exception_in_on_bytes_aborts_and_comes_back(network: Network) -> None:
    """The handler that raised gets its own error; the other side only gets an end."""
    pair = await _Pair(network).listen()
    mine, theirs = await pair.open()
    theirs.fails = ValueError("bad bytes")
    mine.connection.send([b"hello"])
    _expect("the end of the one that raised", theirs.fails, await theirs.ended())
    await mine.ended()
    await pair.end()


async def connecting_where_nobody_listens_fails(network: Network) -> None:
    """With an OSError, and without a handler being made."""
    pair = await _Pair(network).listen()
    await pair.listener.close()
    made: list[Connection] = []

    def accept(connection: Connection) -> _Ear:
        made.append(connection)
        return _Ear(connection)

    try:
        await network.connect(pair.listener.address, accept)
    except OSError:
        _expect("handlers made", [], made)
        return
    raise ConformanceError(f"connected to {pair.listener.address}, where no process listens")


async def an_address_that_cannot_be_listened_on_is_a_config_error(network: Network) -> None:
    """In use, not of this machine, or not an address: the message has the address, and there is a remedy."""
    pair = await _Pair(network).listen()
    for address in (pair.listener.address, _FOREIGN, "no-port", "host:99999", "a:b:1"):
        try:
            await network.listen(address, _Ear)
        except ConfigError as error:
            _expect("the message names the address", True, address in error.message)
            _expect("there is a remedy", True, bool(error.remedy))
        else:
            raise ConformanceError(f"listening on {address}: expected ConfigError, nothing was raised")
    await pair.end()


async def closing_a_listener_leaves_its_connections_alone(network: Network) -> None:
    """And the address is free again immediately."""
    pair = await _Pair(network, echo=True).listen()
    mine, _ = await pair.open()
    await pair.listener.close()
    await pair.listener.close()
    mine.connection.send([b"still there"])
    _expect("echo", b"still there", await mine.hears(11))
    again = await _Pair(network).listen(pair.listener.address)
    await again.open()
    await again.end()
    await pair.end()


async def drain_waits_for_the_queue_and_returns_when_closed(network: Network) -> None:
    """Back-pressure: ``unsent_bytes`` falls, and a waiter never hangs on a connection that ended."""
    pair = await _Pair(network).listen()
    mine, theirs = await pair.open()
    for _ in range(50):
        mine.connection.send([bytes(200_000)])
        async with asyncio.timeout(_PATIENCE):
            await mine.connection.drain()
        _expect("little is unsent", True, mine.connection.unsent_bytes <= 256 * 1024)
    await theirs.hears(10_000_000)
    mine.connection.send([bytes(20_000_000)])
    waiter = asyncio.create_task(mine.connection.drain())
    await asyncio.sleep(0)
    mine.connection.abort()
    async with asyncio.timeout(_PATIENCE):
        await waiter
        await mine.connection.drain()
    await pair.end()


async def a_handler_may_send_as_soon_as_it_is_made(network: Network) -> None:
    """Both ends send first; no byte is lost because there is no handler yet."""
    ears: dict[str, _Ear] = {}

    def greet(name: str) -> Callable[[Connection], _Ear]:
        def accept(connection: Connection) -> _Ear:
            connection.send([name.encode()])
            ears[name] = _Ear(connection)
            return ears[name]

        return accept

    listener = await network.listen(_ANY_PORT, greet("server"))
    connection = await network.connect(listener.address, greet("client"))
    _expect("the client hears", b"server", await ears["client"].hears(6))
    _expect("the server hears", b"client", await ears["server"].hears(6))
    connection.close()
    await ears["client"].ended()
    await ears["server"].ended()
    await listener.close()


async def a_cancelled_connect_leaves_nothing_open(network: Network) -> None:
    """Wherever the cancellation arrives, every handler that was made gets its end."""
    pair = await _Pair(network).listen()
    for turns in range(8):
        task = asyncio.create_task(network.connect(pair.listener.address, pair.accept_mine))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()
    await pair.settle()
    for ear in (*pair.mine, *pair.theirs):
        await ear.ended()
    await pair.end()


async def a_listener_hears_many_at_once(network: Network) -> None:
    """Each connection has its own stream."""
    pair = await _Pair(network, echo=True).listen()
    for _ in range(20):
        await pair.open()
    for number, ear in enumerate(pair.mine):
        ear.connection.send([bytes([number]) * 1000])
    for number, ear in enumerate(pair.mine):
        _expect("echo", bytes([number]) * 1000, await ear.hears(1000))
    await pair.end()


# clock


async def monotonic_time_passes_and_never_goes_back(clock: Clock) -> None:
    """And it passes as the event loop's timers do; so does the uptime while the machine is not suspended."""
    before, uptime = clock.monotonic(), clock.uptime()
    await asyncio.sleep(0.01)
    after = clock.monotonic()
    _expect("time passed", True, 0.005 <= after - before <= _PATIENCE)
    _expect("uptime passed", True, 0.005 <= clock.uptime() - uptime <= _PATIENCE)


async def the_wall_clock_counts_microseconds(clock: Clock) -> None:
    """Whole ones, since 1970: a plausible number has 16 digits."""
    before = clock.wall_us()
    await asyncio.sleep(0.01)
    _expect("an int", int, type(before))
    _expect("16 digits", 16, len(str(before)))
    _expect("time passed", True, clock.wall_us() > before)


# boot id


async def the_boot_id_stays_while_the_machine_runs(boot_id: Callable[[], str]) -> None:
    """It is a short text, fit for a file; "" if the machine has none."""
    before = boot_id()
    await asyncio.sleep(0.01)
    _expect("the boot id later", before, boot_id())
    _expect("short and printable", True, len(before) <= 64 and before.isascii() and before.isprintable())


DISK_BEHAVIOURS: Sequence[Callable[[Disk, str], Coroutine[Any, Any, None]]] = (
    creating_makes_an_empty_file_and_fails_where_one_exists,
    many_buffers_are_written_in_order_without_gaps,
    reading_past_the_end_gives_fewer_bytes,
    overwriting_leaves_the_rest_alone,
    truncating_cuts_and_lengthens_with_zeros,
    what_is_allocated_reads_as_zeros_and_what_was_written_stays,
    renaming_replaces_and_open_files_stay_what_they_are,
    removing_takes_the_name_away,
    directories_are_made_with_parents_and_listed_in_order,
    a_directory_has_one_lock,
    space_and_kind_of_file_system_can_be_asked_for,
    an_asynchronous_file_is_the_same_file,
    calls_of_an_asynchronous_file_may_overlap,
    an_executor_does_everything_in_order_and_reports_it,
    an_executor_that_failed_never_works_again,
    an_executor_takes_what_is_queued_at_once,
)

NETWORK_BEHAVIOURS: Sequence[Callable[[Network], Coroutine[Any, Any, None]]] = (
    port_zero_is_replaced_by_the_port_that_was_bound,
    bytes_arrive_in_order_both_ways,
    closing_sends_what_is_queued_and_ends_both_sides_in_order,
    aborting_ends_both_sides_at_once,
    nothing_is_heard_after_ones_own_close,
    an_exception_in_on_bytes_aborts_and_comes_back,
    connecting_where_nobody_listens_fails,
    an_address_that_cannot_be_listened_on_is_a_config_error,
    closing_a_listener_leaves_its_connections_alone,
    drain_waits_for_the_queue_and_returns_when_closed,
    a_handler_may_send_as_soon_as_it_is_made,
    a_cancelled_connect_leaves_nothing_open,
    a_listener_hears_many_at_once,
)

CLOCK_BEHAVIOURS: Sequence[Callable[[Clock], Coroutine[Any, Any, None]]] = (
    monotonic_time_passes_and_never_goes_back,
    the_wall_clock_counts_microseconds,
)

BOOT_BEHAVIOURS: Sequence[Callable[[Callable[[], str]], Coroutine[Any, Any, None]]] = (
    the_boot_id_stays_while_the_machine_runs,
)
