"""One member of a PySyncObj cluster, run as a process.

With ``--callers`` the elected member calls its counter and reports, because PySyncObj has no client and its callers
must be in the leader's process. With ``--listen`` each member accepts records over a socket from other processes. A
request is a number (u32), a length (u32) and the record. The response is the same number and a flag (u8), 1 if the
record is committed. A request with an empty record asks whether this member leads.

Its journal is a mapped file that it never syncs, and there is no setting for that. ``--sync`` patches it to sync once
for all entries of a turn, before the follower confirms them or the leader counts them. This is the cheapest safe way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import sys
import threading
import time
from array import array
from collections import deque
from typing import Any, cast

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.journal import FileJournal

from viewstamp.bench.load import percentile
from viewstamp.host.event_loop import new_event_loop

_WARM_UP_SECONDS = 1.0
_REQUEST = struct.Struct("<II")
_RESPONSE = struct.Struct("<IB")
_SWITCH_SECONDS = 0.0005


class Counter(SyncObj):  # type: ignore[misc]
    """The same counter as ``benchmarks.actors.Counter``."""

    def __init__(self, me: str, others: list[str], conf: Any) -> None:
        self._value = 0
        super().__init__(me, others, conf)

    @replicated  # type: ignore[untyped-decorator]
    def add(self, number: int) -> int:
        """Add to the counter and return its new value."""
        self._value += number
        return self._value

    @replicated  # type: ignore[untyped-decorator]
    def append(self, value: bytes) -> int:
        """Count a record and return the number of records. Its value is not stored here, because the journal has it."""
        self._value += 1
        return self._value

    @property
    def leads(self) -> bool:
        """Whether this member is the leader and has applied its log."""
        return bool(self.isReady() and self._isLeader())


def sync_journal() -> list[float]:
    """Patch PySyncObj to sync entries before they are confirmed. Return a list to which each sync adds its seconds."""
    add = FileJournal.add
    seconds: list[float] = []
    unsynced: set[Any] = set()

    def add_unsynced(self: Any, *entry: Any) -> None:
        add(self, *entry)
        unsynced.add(self)

    def before(method: Any) -> Any:
        def synced(self: Any, *arguments: Any, **named: Any) -> Any:
            while unsynced:
                started = time.perf_counter()
                unsynced.pop().flush()  # An msync of the whole mapping.
                seconds.append(time.perf_counter() - started)
            return method(self, *arguments, **named)

        return synced

    FileJournal.add = add_unsynced
    # After these two calls a follower confirms entries, and a leader counts its own and sends them.
    for name in ("_SyncObj__sendNextNodeIdx", "_onTick"):
        setattr(SyncObj, name, before(getattr(SyncObj, name)))
    return seconds


def measure(counter: Counter, callers: int, seconds: float) -> dict[str, float]:
    """Keep ``callers`` commands unanswered; the callback of each begins the next, because that is the fastest way."""
    latencies = array("d")
    clock = time.perf_counter
    start = clock() + _WARM_UP_SECONDS
    end = start + seconds
    left = callers
    done = threading.Event()

    def call() -> None:
        nonlocal left
        began = clock()
        if began >= end:
            left -= 1
            if not left:
                done.set()
            return

        def answered(result: Any, error: Any) -> None:
            now = clock()
            if not error and began >= start and now <= end:
                latencies.append((now - began) * 1000)
            call()

        counter.add(1, callback=answered)

    for _ in range(callers):
        call()
    done.wait(_WARM_UP_SECONDS + seconds + 30)
    return {
        "per_second": len(latencies) / seconds,
        "p50_ms": percentile(latencies, 50),
        "p99_ms": percentile(latencies, 99),
    }


class _Caller(asyncio.Protocol):
    """One connection of callers. The counter calls back on its own thread, often for many commands in a row."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._rest = b""
        self._answers: deque[bytes] = deque()
        self._is_flush_due = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= _REQUEST.size:
            number, size = _REQUEST.unpack_from(data, at)
            start = at + _REQUEST.size
            if len(data) < start + size:
                break
            at = start + size
            if size:
                self._counter.append(data[start:at], callback=lambda _, error, n=number: self._answer(n, not error))
            else:
                self._transport.write(_RESPONSE.pack(number, self._counter.leads))
        self._rest = data[at:]

    def _answer(self, number: int, is_committed: bool) -> None:
        self._answers.append(_RESPONSE.pack(number, is_committed))
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False  # Cleared first, because responses that are added from now on schedule another call.
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        self._transport.write(b"".join(found))


async def serve(counter: Counter, port: int) -> None:
    """Accept records from callers in other processes until this process is killed."""
    sys.setswitchinterval(_SWITCH_SECONDS)  # Otherwise this thread and the counter's wait 5 ms for each other.
    server = await asyncio.get_running_loop().create_server(lambda: _Caller(counter), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Run a member until it is killed; with callers, the leader measures and prints one line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("me")
    parser.add_argument("others", nargs="+")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--callers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--listen", type=int, help="port of 127.0.0.1 for callers in other processes, instead of --callers"
    )
    parser.add_argument("--period", type=float, required=True, help="seconds between the leader's messages")
    parser.add_argument("--sync", action="store_true")
    options = parser.parse_args()
    syncs = sync_journal() if options.sync else []
    conf = SyncObjConf(
        journalFile=options.journal,
        appendEntriesPeriod=options.period,
        autoTickPeriod=min(0.05, options.period),
        bindRetryTime=0.2,
        connectionRetryTime=0.2,
    )
    counter = Counter(options.me, options.others, conf)
    if options.listen:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(counter, options.listen))
    while not counter.leads:
        time.sleep(0.05)
    time.sleep(0.5)
    syncs.clear()
    figures = measure(counter, options.callers, options.seconds)
    figures |= {"syncs": len(syncs), "sync_ms_p50": percentile(syncs, 50) * 1000}
    print(json.dumps(figures), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
