"""The power cut: draws its place, rebuilds a possible remainder, starts real nodes on it, and checks the promises."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.promises import Promises
from tests.integration.recorded import TOPICS, WAL
from tests.node.group import PATIENCE_SECONDS, Group
from viewstamp.client import Client
from viewstamp.errors import CorruptionError, UnknownTopicError, ViewstampError
from viewstamp.ids import NodeId
from viewstamp.sim.recording import OperationKind, Playback, Recording
from viewstamp.wal.truncation import MARK_NAME

__all__ = ["Violation", "draw_cuts", "find_violation", "truncations"]

AT_ONCE = 3
"""Number of clusters that are checked in parallel, because most of a start is waiting for an election."""

_RARE = frozenset(
    {
        OperationKind.CREATE,
        OperationKind.TRUNCATE,
        OperationKind.SYNC,
        OperationKind.SYNC_DIRECTORY,
        OperationKind.RENAME,
        OperationKind.REMOVE,
    }
)


def draw_cuts(recording: Recording, count: int, entropy: random.Random) -> list[int]:
    """Draw the places of the cuts, in order: anywhere, near changes of names and lengths, and around truncations."""
    rare = [number for number, operation in enumerate(recording.operations) if operation.kind in _RARE]
    marks = truncations(recording) or rare

    def draw(number: int) -> int:
        match number % 3:
            case 0:
                return entropy.randrange(len(recording) + 1)
            case 1:
                return entropy.choice(rare) + entropy.randrange(6)
            case _:
                return entropy.choice(marks) + entropy.randrange(-4, entropy.choice((24, 200)))

    return sorted(max(0, min(draw(number), len(recording))) for number in range(count))


def truncations(recording: Recording) -> list[int]:
    """Return the numbers of the operations by which truncations are decided."""
    return [
        number
        for number, operation in enumerate(recording.operations)
        if operation.kind is OperationKind.RENAME and operation.target.endswith(MARK_NAME)
    ]


class Violation(NamedTuple):
    """A cut after which a promise is broken."""

    cut_at: int
    complaint: str


async def find_violation(
    recording: Recording,
    cuts: Sequence[int],
    directory: Path,
    entropy: random.Random,
    *,
    earlier: Promises | None = None,
) -> Violation | None:
    """Cut the power at each of ``cuts`` and start real nodes on the remainder; return the first broken promise.

    Args:
      recording: the operations of the disks.
      cuts: numbers of operations, in order.
      directory: a temporary place for the remainders.
      entropy: decides the remainder of each cut.
      earlier: the promises from before the recording.
    """
    replay = Playback(recording)
    places = asyncio.Semaphore(AT_ONCE)
    violations: list[Violation] = []
    tasks: list[asyncio.Task[None]] = []

    async def look(cut_at: int, root: Path, promises: Promises) -> None:
        try:
            complaint = await complaint_about(root, promises, entropy)
        finally:
            places.release()
            await asyncio.to_thread(shutil.rmtree, root)
        if complaint:
            violations.append(Violation(cut_at, complaint))
            for task in tasks:
                if task is not asyncio.current_task():
                    task.cancel()  # It may wait for members that never start.

    async with asyncio.TaskGroup() as looking:
        for number, cut_at in enumerate(cuts):
            await places.acquire()
            if violations:
                break
            root = directory / f"cut-{number}-{cut_at}"
            await asyncio.to_thread(replay.advance, cut_at)
            await asyncio.to_thread(replay.write, entropy, str(root))
            look_after = look(cut_at, root, Promises.before(recording, cut_at, earlier=earlier))
            tasks.append(looking.create_task(look_after))
    return min(violations, default=None)


async def complaint_about(directory: Path, promises: Promises, entropy: random.Random) -> str:
    """Start two members of three, which must have everything, then the third; append once more.

    Return "" if all is well.
    """
    async with Group(directory, wal=WAL) as group:
        first, second, third = entropy.sample(list(group.members), 3)
        try:
            await _come_back(group, first, second)
            for complaint in _losses(group, promises):
                return complaint
            client = group.client()
            found = {topic: await _read(client, topic, None) for topic in TOPICS}
            for topic, values in found.items():
                for complaint in promises.complaints(topic, values):
                    return f"{complaint} (in the contents of {first} and {second})"
            await _come_back(group, third)
            for complaint in _losses(group, promises):
                return complaint
            await group.caught_up()
            for topic, values in found.items():
                for name in group.members:
                    if await _read(client, topic, name) != values:
                        return f"{name} holds something else in {topic} than {first} and {second} did"
                await client.create_topic(topic)
                receipt = await client.append(topic, b"after the cut")
                if receipt.position != len(values) + 1:
                    return f"{topic} ended at {len(values)}, and goes on at {receipt.position}"
        except ViewstampError as error:
            return f"{type(error).__name__}: {error.message}"
        except TimeoutError:
            return "they do not start: no member has the records that they lack"
    return ""


async def _come_back(group: Group, *names: NodeId) -> None:
    """Start members.

    Damage is an error here, because a power cut leaves none; a node would repair it or wait for ever.
    """
    starting = asyncio.ensure_future(group.run(*names))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not starting.done():
                await asyncio.wait([starting], timeout=0.05)
                for event in ("! damaged", "! term and vote are lost: the node joins as a new member"):
                    for line in group.journal.of(event):
                        raise CorruptionError(str(line.get("reason")))
        starting.result()
    finally:
        starting.cancel()
        await asyncio.wait([starting])


def _losses(group: Group, promises: Promises) -> Iterator[str]:
    """Describe the running members that came back with less than they had reported as durable."""
    for name, node in group.nodes.items():
        assert node.group.wal is not None, "the node runs"
        end, promised = node.group.wal.recovery.end, promises.durable.get(name, 0)
        if end < promised:
            yield f"{name} was durable up to {promised}, and came back with {end}"


async def _read(client: Client, topic: str, node: NodeId | None) -> list[bytes]:
    try:
        return [record.value async for record in client.read(topic, node=node)]
    except UnknownTopicError:
        return []  # The cut came before it was created.
