"""One member of a PySyncObj cluster with a counter, run as a process; whichever is elected calls and reports.

Its journal is a mapped file that it never syncs, and there is no setting for that. ``--sync`` patches it to do so once
for all entries of a turn, before they are confirmed to the leader, or counted by it: the cheapest way that is right.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from array import array
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.journal import FileJournal

from benchmarks.report import percentile

_WARM_UP_SECONDS = 1.0


class Counter(SyncObj):  # type: ignore[misc]
    """The same counter as ``benchmarks.actors.Counter``."""

    def __init__(self, me: str, others: list[str], conf: Any) -> None:
        self._value = 0
        super().__init__(me, others, conf)

    @replicated  # type: ignore[untyped-decorator]
    def add(self, number: int) -> int:
        """Add to the counter and return what it comes to."""
        self._value += number
        return self._value


def sync_journal() -> list[float]:
    """Have PySyncObj sync what answers and commits rest on. Return a list that grows by each sync's seconds."""
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
                unsynced.pop().flush()  # msync of the whole mapping
                seconds.append(time.perf_counter() - started)
            return method(self, *arguments, **named)

        return synced

    FileJournal.add = add_unsynced
    # A follower answers, and a leader counts itself and sends, behind these two.
    for name in ("_SyncObj__sendNextNodeIdx", "_onTick"):
        setattr(SyncObj, name, before(getattr(SyncObj, name)))
    return seconds


def measure(counter: Counter, callers: int, seconds: float) -> dict[str, float]:
    """Keep ``callers`` commands going; each is followed by the next from its callback, the quickest way there is."""
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


def main() -> None:
    """Run a member until it is killed; print a line once it has led and measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("me")
    parser.add_argument("others", nargs="+")
    parser.add_argument("--journal", required=True)
    parser.add_argument("--callers", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
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
    while not (counter.isReady() and counter._isLeader()):
        time.sleep(0.05)
    time.sleep(0.5)
    syncs.clear()
    figures = measure(counter, options.callers, options.seconds)
    figures |= {"syncs": len(syncs), "sync_ms_p50": percentile(syncs, 50) * 1000}
    print(json.dumps(figures), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
