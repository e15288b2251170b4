"""Starts contenders, lets them work in turns, and makes a subject of what each has done.

A contender that fails loses its subject and costs no other one theirs: the row's result says what failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from benchmarks.peers.peer import Append, Peer, Session
from benchmarks.rows.row import Options, RowResult, Subject
from viewstamp.bench.load import Figures, drive
from viewstamp.errors import ViewstampError

__all__ = ["Contender", "Described", "Turn", "appending", "open_sessions", "running", "slug", "take_turns"]

_START_SECONDS = 90.0

Work = Callable[[float], Awaitable["Turn"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one contender did in one turn."""

    value: float
    """In the row's unit."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_cores: float | None = None

    @classmethod
    def of(cls, figures: Figures, value: float | None = None) -> Turn:
        """Make a turn of what was driven; its value is calls a second, unless another is given."""
        return cls(
            value=figures.per_second if value is None else value,
            p50_ms=figures.percentile_ms(50),
            p99_ms=figures.percentile_ms(99),
            client_cores=figures.client_cores,
        )


class Described(Protocol):
    """What says how it is asked, and what holds when it has answered: a :class:`Peer`, or what needs no servers."""

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
    """How the client is used, behind what it is: "8 connections"."""


@asynccontextmanager
async def running(
    peer: Peer, directory: Path, options: Options, result: RowResult, name: str = ""
) -> AsyncIterator[bool]:
    """Yield whether the peer runs; where it does not, ``result`` says why. It is stopped in the end.

    Its files go to a directory in ``directory`` that is named after it, or after ``name``, which the lines say then.
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


@asynccontextmanager
async def open_sessions(peer: Peer, count: int) -> AsyncIterator[list[Session]]:
    """Yield ``count`` sessions of a peer that runs, and close them in the end."""
    sessions: list[Session] = []
    try:
        for _ in range(count):
            sessions.append(await peer.connect())
        yield sessions
    finally:
        await asyncio.gather(*(each.close() for each in sessions), return_exceptions=True)


def appending(sessions: Sequence[Session], value: bytes, callers: int) -> Work:
    """Return the work of ``callers`` that append ``value``, each awaiting its append before the next."""
    appends: list[Append] = [each.append for each in sessions]

    async def work(seconds: float) -> Turn:
        return Turn.of(await drive(appends, value, callers=callers, seconds=seconds))

    return work


async def take_turns(
    contenders: Sequence[Contender], options: Options, result: RowResult, unit: str, rounds: int = 0
) -> None:
    """Let each work for ``options.seconds``, one after the other, ``rounds`` (0 = the options') times over.

    The subjects are added to ``result``, in the order of the contenders.
    """
    turns: dict[str, list[Turn]] = {each.name: [] for each in contenders}
    for _ in range(rounds or options.rounds):
        for each in contenders:
            if each.name not in turns:
                continue
            try:
                turn = await each.work(options.seconds)
            except (OSError, ViewstampError) as error:
                _failed(result, options, each.name, error)
                del turns[each.name]
                continue
            turns[each.name].append(turn)
            cores = "" if turn.client_cores is None else f", client {turn.client_cores:.2f} cores"
            options.say(f"{each.name}: {turn.value:,.{0 if turn.value >= 100 else 2}f} {unit}{cores}")
    for each in contenders:
        if found := turns.get(each.name):
            result.subjects.append(_subject(each, found))


def slug(name: str) -> str:
    """Return a short name for a directory: "nats-jetstream"."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())


def _subject(contender: Contender, turns: Sequence[Turn]) -> Subject:
    def middle(values: Sequence[float | None]) -> float | None:
        known = [each for each in values if each is not None]
        return median(known) if known else None

    return Subject(
        name=contender.name,
        turns=[turn.value for turn in turns],
        p50_ms=middle([turn.p50_ms for turn in turns]),
        p99_ms=middle([turn.p99_ms for turn in turns]),
        client_cores=middle([turn.client_cores for turn in turns]),
        durability=contender.peer.durability,
        client=", ".join(filter(None, [contender.peer.client, contender.how])),
    )


def _failed(result: RowResult, options: Options, name: str, error: BaseException) -> None:
    line = f"{name}: {str(error) or type(error).__name__}"
    options.say(f"FAILED: {line}")
    result.failed.append(line)
