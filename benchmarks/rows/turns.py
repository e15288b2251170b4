"""Runs contenders in turns, and makes a subject from the turns of each.

Only one system runs at a time: :func:`alternate` starts the servers of one side anew for each of its turns, with empty
disks, and stops them before those of the next side start. Otherwise idle servers, and the writing back of their data by
the kernel, would take part of the two processors and of the disk from the system that is measured.

A contender that fails loses its subject, and the others keep theirs; ``failed`` of the row's result has the error.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from benchmarks.peers.peer import Append, Peer, Session
from benchmarks.rows.row import Options, RowResult, Subject
from viewstamp.bench.load import Figures, drive
from viewstamp.errors import ViewstampError

__all__ = [
    "Contender",
    "Described",
    "Side",
    "Turn",
    "alternate",
    "appending",
    "open_sessions",
    "running",
    "side_of",
    "slug",
    "take_turns",
]

_START_SECONDS = 90.0

Work = Callable[[float], Awaitable["Turn"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The figures of one contender in one turn."""

    value: float
    """The figure, in the row's unit."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_cores: float | None = None
    cpu_us: float | None = None
    """Microseconds of processor for each record, in callers and servers together."""

    @classmethod
    def of(cls, figures: Figures, value: float | None = None, *, records: int = 1) -> Turn:
        """Make a turn of figures.

        Args:
          figures: of the calls.
          value: in the row's unit; None = calls a second.
          records: in each call.
        """
        return cls(
            value=figures.per_second if value is None else value,
            p50_ms=figures.percentile_ms(50),
            p99_ms=figures.percentile_ms(99),
            client_cores=figures.client_cores,
            cpu_us=None if figures.cpu_us is None else figures.cpu_us / records,
        )


class Described(Protocol):
    """A :class:`Peer`, or a system without servers: its client, and the durability of its acknowledged records."""

    client: str
    durability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A subject that takes turns with others."""

    name: str
    peer: Described
    work: Work
    """Called with the seconds of a turn."""
    how: str = ""
    """The use of the client, for example "8 connections"; shown after its description."""


Contenders = AbstractAsyncContextManager[Sequence[Contender]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """A system, and the loads that are measured while it runs."""

    start: Callable[[], Contenders]
    """Starts the system and yields its contenders, none if it cannot run; stops it at exit."""
    rounds: int = 0
    """Number of its turns; 0 = that of the options."""


@asynccontextmanager
async def running(
    peer: Peer, directory: Path, options: Options, result: RowResult, name: str = ""
) -> AsyncIterator[bool]:
    """Start a peer and yield whether it runs; if not, ``result`` has the reason. The peer is stopped at exit.

    Its files are in a directory in ``directory``. This directory and the messages have the peer's name, or ``name``.
    """
    name = name or peer.name
    if reason := peer.absent():
        options.say(f"left out: {name}: {reason}")
        result.left_out.append(f"{name}: {reason}")
        yield False
        return
    options.say(f"starting {name}")
    try:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await peer.start(directory / slug(name))
        except (OSError, ViewstampError) as error:  # A TimeoutError is an OSError.
            _failed(result, options, name, error)
            yield False
        else:
            yield True
    finally:
        await peer.stop()


def side_of(
    peer: Peer,
    directory: Path,
    options: Options,
    result: RowResult,
    contenders: Callable[[AsyncExitStack], Awaitable[Sequence[Contender]]],
    *,
    rounds: int = 0,
) -> Side:
    """Return the side of a peer.

    Args:
      peer: is started on an empty directory for each turn.
      directory: for its files, which are removed after each turn.
      options: those of the run.
      result: gets a line if the peer is not installed or does not start.
      contenders: called when the peer runs; enters its sessions into the stack, which closes them.
      rounds: as :attr:`Side.rounds`.
    """

    @asynccontextmanager
    async def start() -> AsyncIterator[Sequence[Contender]]:
        try:
            async with AsyncExitStack() as stack:
                found: Sequence[Contender] = ()
                if await stack.enter_async_context(running(peer, directory, options, result)):
                    try:
                        found = await contenders(stack)
                    except (OSError, ViewstampError) as error:
                        _failed(result, options, peer.name, error)
                yield found
        finally:
            await asyncio.to_thread(shutil.rmtree, directory / slug(peer.name), ignore_errors=True)

    return Side(start=start, rounds=rounds)


@asynccontextmanager
async def open_sessions(peer: Peer, count: int) -> AsyncIterator[list[Session]]:
    """Yield ``count`` sessions of a running peer; closes them at exit."""
    sessions: list[Session] = []
    try:
        for _ in range(count):
            sessions.append(await peer.connect())
        yield sessions
    finally:
        await asyncio.gather(*(each.close() for each in sessions), return_exceptions=True)


def appending(peer: Peer, sessions: Sequence[Session], value: bytes, callers: int) -> Work:
    """Return the work of ``callers`` that append ``value``, each awaiting its append before the next."""
    appends: list[Append] = [each.append for each in sessions]

    async def work(seconds: float) -> Turn:
        return Turn.of(await drive(appends, value, callers=callers, seconds=seconds, servers=peer.cpu_used))

    return work


async def alternate(sides: Sequence[Side], options: Options, result: RowResult, unit: str) -> None:
    """Start each side in turn, let its contenders work for ``options.seconds`` each, and stop it, once for each round.

    The subjects are added to ``result`` in the order of the sides.
    """
    turns = _Turns(options, result, unit)
    left = list(sides)
    for number in range(max((each.rounds or options.rounds for each in sides), default=0)):
        for side in [each for each in left if number < (each.rounds or options.rounds)]:
            async with side.start() as contenders:
                for each in contenders:
                    await turns.take(side, each)
            if not contenders:
                left.remove(side)
    for side in sides:
        turns.finish(side)


async def take_turns(
    contenders: Sequence[Contender], options: Options, result: RowResult, unit: str, rounds: int = 0
) -> None:
    """Let each contender work for ``options.seconds``, one after the other, ``rounds`` times (0 = that of the options).

    Use it for contenders whose system already runs and keeps its state between the turns. The subjects are added to
    ``result`` in the order of the contenders.
    """
    turns = _Turns(options, result, unit)
    for _ in range(rounds or options.rounds):
        for each in contenders:
            await turns.take(None, each)
    turns.finish(None)


class _Turns:
    """The turns of all contenders so far."""

    def __init__(self, options: Options, result: RowResult, unit: str) -> None:
        self._options, self._result, self._unit = options, result, unit
        self._taken: dict[tuple[Side | None, str], tuple[Contender, list[Turn]]] = {}
        self._failed: set[tuple[Side | None, str]] = set()

    async def take(self, side: Side | None, contender: Contender) -> None:
        key = (side, contender.name)
        if key in self._failed:
            return
        try:
            turn = await contender.work(self._options.seconds)
        except (OSError, ViewstampError) as error:
            _failed(self._result, self._options, contender.name, error)
            self._failed.add(key)
            self._taken.pop(key, None)
            return
        self._taken.setdefault(key, (contender, []))[1].append(turn)
        cores = "" if turn.client_cores is None else f", client {turn.client_cores:.2f} cores"
        cpu = "" if turn.cpu_us is None else f", {turn.cpu_us:,.1f} us of processor each"
        digits = 0 if turn.value >= 100 else 2
        self._options.say(f"{contender.name}: {turn.value:,.{digits}f} {self._unit}{cores}{cpu}")

    def finish(self, side: Side | None) -> None:
        for (of, _), (contender, turns) in self._taken.items():
            if of is side:
                self._result.subjects.append(_subject(contender, turns))


def slug(name: str) -> str:
    """Return a short name for a directory: "nats-jetstream"."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())


def _subject(contender: Contender, turns: Sequence[Turn]) -> Subject:
    def middle(name: str) -> float | None:
        known = [value for turn in turns if (value := getattr(turn, name)) is not None]
        return median(known) if known else None

    return Subject(
        name=contender.name,
        turns=[turn.value for turn in turns],
        p50_ms=middle("p50_ms"),
        p99_ms=middle("p99_ms"),
        client_cores=middle("client_cores"),
        cpu_us=middle("cpu_us"),
        durability=contender.peer.durability,
        client=", ".join(filter(None, [contender.peer.client, contender.how])),
    )


def _failed(result: RowResult, options: Options, name: str, error: BaseException) -> None:
    line = f"{name}: {str(error) or type(error).__name__}"
    options.say(f"FAILED: {line}")
    result.failed.append(line)
