"""``viewstamp demo``: the main job end to end, with real processes, real kills and a proof.

A file of lines goes into a fresh cluster, one record a line. Half-way the leader is killed with SIGKILL (with five
nodes: a minority, the leader among it, at once), restarted, and at three quarters the next leader. Then the proof:
what each node serves, and with all nodes stopped what each node's own files hold, is read by other processes and
compared with the input, line for line.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.options import LocalDirOption, Output, OutputOption, print_json, say
from viewstamp.cli.target import DEFAULT_DIRECTORY, run_async
from viewstamp.config.create import node_file
from viewstamp.errors import ConfigError, RequestError, UnavailableError

if TYPE_CHECKING:
    from viewstamp.cli.append import Appended
    from viewstamp.cli.local import LocalCluster, LocalNode
    from viewstamp.cli.proof import Comparison
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Receipt

__all__ = ["demo"]

MARKER: Final = "demo.json"
KILLS: Final = (1 / 2, 3 / 4)
WAIT_SECONDS: Final = 60.0
APPEND_SECONDS: Final = 120.0
WATCH_SECONDS: Final = 0.2
MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})


def demo(
    input: Annotated[  # noqa: A002 - the name of the option
        Path | None, typer.Option("--input", metavar="FILE", help="Lines to append, instead of the flights.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=3, max=9, help="Nodes of the cluster.")] = 3,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster's data, stopped, to look at it.")] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Append a real data set to a cluster of real processes, kill leaders meanwhile, and prove that nothing is lost."""
    path = os.path.abspath(directory)
    if input is not None and not input.is_file():
        raise ConfigError(f"{input} is no file", remedy="name a file of lines with --input, or leave it out")
    with _claimed(path) as claim:
        show = _Show(output)
        show.warn_of_memory(path)
        source = _Source.prepare(path, input, show)
        result = run_async(_Demo(path, nodes, source, show).run())
        if output is Output.JSON:
            print_json(result.as_json())
        else:
            result.print(path, keep=keep)
        claim.finish(keep=keep or not result.holds)
    if not result.holds:
        say(f"viewstamp: the proof failed; everything is kept in {path}")
    return 0 if result.holds else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The lines to append."""

    path: str
    topic: str
    lines: int
    bytes: int

    @classmethod
    def prepare(cls, directory: str, file: Path | None, show: _Show) -> _Source:
        """Count the lines of ``file``, or write the flights into a file of their own first."""
        from viewstamp.cli.flights import FLIGHTS, flights

        if file is None:
            show.phase(f"reading {FLIGHTS:,} flights")
            path = os.path.join(directory, "flights.jsonl")
            with open(path, "wb") as stream:
                stream.writelines(line + b"\n" for line in flights())
        else:
            path = os.path.abspath(file)
        from viewstamp.cli.proof import lines_of

        count = sum(1 for _ in lines_of(path))
        if not count:
            raise RequestError(f"{path} is empty: there is nothing to append", remedy="name a file with lines in it")
        topic = "flights" if file is None else "lines"
        return cls(path=path, topic=topic, lines=count, bytes=os.path.getsize(path))


@dataclass(slots=True)
class _Kill:
    """One kill: who, in which term, when, and when the cluster acknowledged the next append."""

    nodes: list[str]
    term: int
    at: float
    next_at: float | None = None

    @property
    def milliseconds(self) -> float | None:
        return None if self.next_at is None else round((self.next_at - self.at) * 1000, 1)


@dataclass(slots=True)
class _Result:
    """What came out."""

    source: _Source
    nodes: int
    acknowledged: int = 0
    seconds: float = 0.0
    kills: list[_Kill] = field(default_factory=list)
    led: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    syncs: float | None = None
    disk_bytes: int = 0
    filesystem: str = "unknown"
    readers: dict[str, Comparison] = field(default_factory=dict)

    @property
    def replicas_equal(self) -> bool:
        return len({comparison.digest for comparison in self.readers.values()}) == 1

    @property
    def holds(self) -> bool:
        """The proof: all six say the same, it is the input, and every line of it was acknowledged."""
        return (
            len(self.readers) == 2 * self.nodes
            and self.acknowledged == self.source.lines
            and all(comparison.is_equal for comparison in self.readers.values())
            and self.replicas_equal
        )

    def worst(self, name: str) -> int:
        return max((getattr(comparison, name) for comparison in self.readers.values()), default=0)

    def as_json(self) -> dict[str, object]:
        failovers = [kill.milliseconds for kill in self.kills]
        return {
            "records": self.source.lines,
            "acknowledged": self.acknowledged,
            "lost": self.worst("lost"),
            "duplicated": self.worst("duplicated"),
            "out_of_order": self.worst("out_of_order"),
            "replicas_equal": self.replicas_equal,
            "records_per_second": round(self.acknowledged / self.seconds, 1),
            "failover_ms": failovers[0] if failovers else None,
            "failovers_ms": failovers,
            "nodes": self.nodes,
            "megabytes": round(self.source.bytes / 1e6, 3),
            "seconds": round(self.seconds, 3),
            "syncs_per_record": self.syncs,
            "batches_retried": self.retried,
            "led": dict(sorted(self.led.items())),
            "disk_bytes": self.disk_bytes,
            "filesystem": self.filesystem,
            "readers": {
                name: {"records": comparison.records, "equal": comparison.is_equal, "difference": comparison.difference}
                for name, comparison in self.readers.items()
            },
        }

    def print(self, path: str, *, keep: bool) -> None:
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False)
        table = Table(title="the proof holds" if self.holds else "THE PROOF FAILED", show_header=False)
        table.add_column(style="bold")
        table.add_column()
        for name, value in self._rows():
            table.add_row(name, value)
        console.print(table)
        for name, comparison in self.readers.items():
            verdict = "equal to the input, line for line" if comparison.is_equal else comparison.difference
            console.print(f"  {name:<22} {comparison.records:>9,} records   {verdict}", markup=False)
        console.print(self._next(path, keep=keep), markup=False, soft_wrap=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "records", f"{self.source.lines:,}, {self.acknowledged:,} acknowledged"
        yield (
            "lost, duplicated, out of order",
            ", ".join(f"{self.worst(name):,}" for name in ("lost", "duplicated", "out_of_order")),
        )
        yield "MB", f"{self.source.bytes / 1e6:,.1f}"
        yield "seconds", f"{self.seconds:,.1f}"
        yield "records/s", f"{self.acknowledged / self.seconds:,.0f}"
        for kill in self.kills:
            failover = "nothing was acknowledged" if kill.milliseconds is None else f"{kill.milliseconds:,.0f} ms"
            yield f"failover, {' and '.join(kill.nodes)} killed", failover
        yield "syncs per record", "unknown" if self.syncs is None else f"{self.syncs:.4f} on each node"
        yield "batches retried", f"{self.retried:,}"
        yield "led", ", ".join(f"{name} {times}x" for name, times in sorted(self.led.items()))
        yield "disk used", f"{self.disk_bytes / 1e6:,.1f} MB on {self.filesystem}, all nodes"

    def _next(self, path: str, *, keep: bool) -> str:
        shown = os.path.relpath(path) if not os.path.relpath(path).startswith("..") else path
        where = "" if shown == DEFAULT_DIRECTORY else f" --dir {shown}"
        if keep:
            return (
                "\nTry next, with what is left there:\n"
                f"  viewstamp cluster start{where}\n"
                f"  viewstamp read {self.source.topic} --to 3{where}\n"
                f"  viewstamp cluster kill n1{where} && viewstamp status{where}\n"
                f"  viewstamp wal verify {os.path.join(shown, 'n1')}"
            )
        return (
            "\nThe data has been removed (--keep keeps it). Try next:\n"
            f"  viewstamp cluster start{where}\n"
            f"  viewstamp topic create orders{where}\n"
            f"  echo hello | viewstamp append orders{where} && viewstamp read orders{where}"
        )


class _Demo:
    """One run, from the first process to the last reader. Leaves no process behind."""

    def __init__(self, directory: str, nodes: int, source: _Source, show: _Show) -> None:
        from viewstamp.cli.append import Appended
        from viewstamp.cli.local import LocalCluster

        self._source = source
        self._show = show
        self._cluster: LocalCluster = LocalCluster.open_or_create(directory, nodes)
        self._result = _Result(source=source, nodes=nodes)
        self._appended: Appended = Appended()
        self._sent = 0
        self._last_index = 0
        self._terms_led: dict[int, str] = {}
        self._fallen: asyncio.Task[None] | None = None

    async def run(self) -> _Result:
        try:
            self._show.phase(f"starting {self._result.nodes} nodes in {self._cluster.directory}")
            self._cluster.spawn_missing()
            await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
            async with self._cluster.target.connect() as client:
                await client.create_topic(self._source.topic)
                await self._append(client)
                self._result.retried = client.batches_retried
            await self._read_online()
            self._show.phase("stopping all nodes")
            await self._cluster.stop(WAIT_SECONDS)
            await self._read_offline()
            self._measure_disk()
        finally:
            self._show.close()
            if self._fallen is not None:
                self._fallen.cancel()
                await asyncio.gather(self._fallen, return_exceptions=True)
            for node in self._cluster.nodes.values():
                await node.kill()
        return self._result

    # Writing, and killing meanwhile.

    async def _append(self, client: Client) -> None:
        from viewstamp.cli.append import Appended, append_chunks

        self._appended = Appended(on_receipts=self._on_receipts)
        watcher = asyncio.create_task(self._watch())
        started = time.monotonic()
        try:
            await append_chunks(
                client, self._source.topic, self._chunks(client), self._appended, timeout=APPEND_SECONDS
            )
        finally:
            watcher.cancel()
        self._result.seconds = time.monotonic() - started
        self._result.acknowledged = self._appended.acknowledged
        if self._appended.error is not None:
            raise self._appended.error
        if self._fallen is not None:
            await self._fallen
        for node in self._cluster.nodes.values():
            self._cluster.spawn(node)
        self._show.phase("waiting until every node has all of it")
        await self._cluster.wait_running(self._cluster.nodes.values(), WAIT_SECONDS)
        await self._wait_applied(self._last_index)
        await self._note_leader()
        self._result.led.update(self._terms_led.values())

    def _on_receipts(self, receipts: list[Receipt]) -> None:
        """Note when the cluster has got over a kill.

        Receipts of the killed leader may still be on their way when it dies: only a later term's is a failover.
        """
        self._last_index = receipts[-1].index
        for kill in self._result.kills:
            if kill.next_at is None and receipts[-1].term > kill.term:
                kill.next_at = time.monotonic()

    async def _chunks(self, client: Client) -> AsyncIterator[list[bytes]]:
        """Yield the lines, and stop at each kill until it has been done: so it happens under load, at that line."""
        from viewstamp.cli.append import _opened, chunks_of
        from viewstamp.cli.lines import read_lines

        limit = client.record_bytes_max
        stops = [int(self._source.lines * share) for share in KILLS]
        with _opened(self._source.path) as descriptor:
            async for chunk in chunks_of(read_lines(descriptor, limit), lambda _: None):
                at = 0
                while at < len(chunk):
                    if stops and self._sent == stops[0]:
                        stops.pop(0)
                        await self._fall()
                        continue
                    size = min(len(chunk) - at, stops[0] - self._sent if stops else len(chunk))
                    self._sent += size
                    yield chunk[at : at + size]
                    at += size

    async def _fall(self) -> None:
        """Kill the leader and as many others as a majority can do without; what is down already comes back first."""
        if self._fallen is not None:
            await self._fallen
        kill = await self._kill_leader()
        self._result.kills.append(kill)
        self._fallen = asyncio.create_task(self._bring_back(kill))

    async def _kill_leader(self) -> _Kill:
        leader, term = await self._find_leader()
        others = [node for node in self._cluster.nodes.values() if node is not leader]
        doomed = [leader, *others[: (len(others)) // 2 - 1]]
        moment = time.monotonic()
        for node in doomed:
            node.send_signal(signal.SIGKILL)
        for node in doomed:
            await node.wait_gone(WAIT_SECONDS)
        self._show.note(f"killed {' and '.join(node.id for node in doomed)} (SIGKILL), of which {leader.id} led")
        return _Kill([str(node.id) for node in doomed], term, moment)

    async def _bring_back(self, kill: _Kill) -> None:
        """Restart what was killed, once the cluster has gone on without it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while kill.next_at is None and time.monotonic() < deadline:
            if self._appended.acknowledged == self._sent or self._appended.error is not None:
                break  # Nothing is on its way that could be the next one.
            await asyncio.sleep(0.02)
        nodes = [self._cluster.nodes[name] for name in self._cluster.nodes if name in kill.nodes]
        for node in nodes:
            self._cluster.spawn(node)
        await self._cluster.wait_running(nodes, WAIT_SECONDS)
        self._show.note(f"restarted {' and '.join(kill.nodes)}")

    async def _find_leader(self) -> tuple[LocalNode, int]:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            found = await self._note_leader()
            if found is not None:
                return self._cluster.node(found[0]), found[1]
            await asyncio.sleep(0.05)
        raise UnavailableError("nobody leads", remedy=f"look into {self._cluster.directory}/n1/log.jsonl")

    async def _note_leader(self) -> tuple[str, int] | None:
        summary = await self._summary()
        if summary["leader"] is None:
            return None
        self._terms_led[summary["term"]] = summary["leader"]
        return summary["leader"], summary["term"]

    async def _summary(self) -> Mapping[str, Any]:
        from viewstamp.cli.status import summary

        async with self._cluster.target.connect() as client:
            return summary(await client.status(), self._cluster.target.names)

    async def _watch(self) -> None:
        """Keep the progress line true, and note who leads in which term."""
        before, count_before = time.monotonic(), 0
        while True:
            found = await self._note_leader()
            now, count = time.monotonic(), self._appended.acknowledged
            rate = (count - count_before) / max(now - before, 1e-6)
            before, count_before = now, count
            self._show.progress(count, self._source.lines, found[0] if found else None, rate)
            await asyncio.sleep(WATCH_SECONDS)

    async def _wait_applied(self, index: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            nodes = (await self._summary())["nodes"]
            if all(node["reachable"] and node["applied_index"] >= index for node in nodes):
                return
            await asyncio.sleep(0.05)
        raise UnavailableError(f"not every node has applied index {index} within {WAIT_SECONDS:g} s")

    # Reading, in processes that share nothing with the writer.

    async def _read_online(self) -> None:
        for name in self._cluster.nodes:
            arguments = ["read", self._source.topic, "--node", name, "--dir", self._cluster.directory]
            await self._compare(f"{name}, read --node", arguments)

    async def _read_offline(self) -> None:
        for name, node in self._cluster.nodes.items():
            arguments = ["wal", "read", node.directory, self._source.topic]
            await self._compare(f"{name}, its own files", arguments)

    async def _compare(self, reader: str, arguments: Sequence[str]) -> None:
        """Run a reader and compare what it prints, off the loop: it takes a core for a while."""
        from viewstamp.cli.proof import compare, records_of

        self._show.phase(f"comparing {reader}, with the input")
        command = [sys.executable, "-m", "viewstamp", *arguments, "--output", "json"]
        process = _start_reader(command)
        with process:
            try:
                self._result.readers[reader] = await asyncio.to_thread(
                    compare, self._source.path, records_of(process.stdout or []), self._result.acknowledged
                )
            finally:
                process.kill()

    def _measure_disk(self) -> None:
        from viewstamp.host.disk import RealDisk
        from viewstamp.wal.reader import inspect

        nodes = self._cluster.nodes.values()
        self._result.disk_bytes = sum(_disk_bytes(node.directory) for node in nodes)
        self._result.filesystem = RealDisk().filesystem(self._cluster.directory)
        # A group is one write and one sync.
        groups = sum(entry.kind == "group" for node in nodes for entry in inspect(RealDisk(), node.directory))
        self._result.syncs = round(groups / len(nodes) / self._source.lines, 6)


def _start_reader(command: Sequence[str]) -> subprocess.Popen[bytes]:
    # In a session of its own, so that Ctrl-C reaches this process alone, which then ends it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)


def _disk_bytes(directory: str) -> int:
    blocks = 0
    for base, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                blocks += os.stat(os.path.join(base, name)).st_blocks
    return blocks * 512


class _Show:
    """What a person sees while it works, on stderr: a bar in a terminal, now and then a line elsewhere."""

    def __init__(self, output: Output) -> None:
        self._is_silent = output is Output.JSON
        self._bar: Any = None
        self._task: Any = None
        self._line_at = 0.0
        if not self._is_silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

            columns: list[Any] = [SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()

    def phase(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        elif not self._is_silent:
            say(text)

    def note(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(text)
        elif not self._is_silent:
            say(text)

    def progress(self, done: int, total: int, leader: str | None, rate: float) -> None:
        text = f"leader {leader or '-'}   {rate:,.0f} records/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=text)
        elif not self._is_silent and time.monotonic() - self._line_at > 2:
            self._line_at = time.monotonic()
            say(f"{done:>9,} of {total:,}   {text}")

    def warn_of_memory(self, path: str) -> None:
        from viewstamp.host.disk import RealDisk

        filesystem = RealDisk().filesystem(path)
        if filesystem in MEMORY_FILESYSTEMS:
            self.note(
                f"WARNING: {path} is on {filesystem}: MEMORY, NOT A DISK. Nothing there survives a power cut, and its "
                "speed is no disk's. Name a directory on a disk with --dir."
            )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class _Claim:
    """A demo's hold on its directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def finish(self, *, keep: bool) -> None:
        """Remove what the demo made; with ``keep`` it is the user's from now on, and no later demo removes it."""
        if keep:
            os.remove(os.path.join(self._path, MARKER))
        else:
            _remove(self._path)


@contextmanager
def _claimed(path: str) -> Iterator[_Claim]:
    """Take an empty directory, or one that an interrupted demo left behind; never anybody's data.

    Raises:
      ConfigError: something else lies there, or another demo is at work.
    """
    marker = os.path.join(path, MARKER)
    os.makedirs(path, exist_ok=True)
    if os.listdir(path) and not os.path.exists(marker):
        raise ConfigError(
            f"{path} is not empty, and a demo starts from nothing",
            remedy="name another directory with --dir, or remove this one if nobody needs what is in it",
        )
    with open(marker, "a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"another demo is at work in {path}", remedy="wait for it, or use --dir") from error
        _kill_left_behind(path)
        _remove(path, but=MARKER)
        stream.write(json.dumps({"process": os.getpid()}) + "\n")
        stream.flush()
        try:
            yield _Claim(path)
        except BaseException:
            if not os.path.exists(node_file(path, "n1")):
                _remove(path)  # It failed before there was anything to look at.
            raise


def _kill_left_behind(path: str) -> None:
    from viewstamp.cli.local import LocalCluster

    with suppress(ConfigError):
        for node in LocalCluster.open(path).nodes.values():
            asyncio.run(node.kill())


def _remove(path: str, *, but: str = "") -> None:
    """Remove what a demo makes, and nothing else; the directory too where it is empty then."""
    for name in os.listdir(path):
        full = os.path.join(path, name)
        if name != but and re.fullmatch(r"n[0-9]+(\.toml(\.new)?)?|cluster\.lock|flights\.jsonl|demo\.json", name):
            if os.path.isdir(full):
                shutil.rmtree(full)
            else:
                os.remove(full)
    with suppress(OSError):
        os.rmdir(path)
