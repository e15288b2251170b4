"""Real nodes that each run a ledger, in this event loop or as processes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration import ledger
from tests.integration.ledger import Ledger
from tests.node.group import Group
from tests.processes import Processes, running
from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.client import Client
from viewstamp.errors import StorageFullError
from viewstamp.host.interfaces import Disk
from viewstamp.ids import NodeId
from viewstamp.streams import Streams

__all__ = ["ActorGroup", "Callers", "Classes", "actor_processes", "bytes_in", "files_in"]

_PATIENCE_SECONDS = 30.0
"""Seconds for which a caller retries refused calls, across restarts."""

Classes = Mapping[str, type[ReplicatedActor]]


class ActorGroup(Group):
    """A group that runs the given actor classes on its members, by default a ledger each."""

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        classes: Callable[[NodeId], Classes] = lambda _: {"ledger": Ledger},
        disks: Callable[[NodeId], Disk] | None = None,
        seed: int = 1,
        **options: Any,
    ) -> None:
        """See ``Group``; ``classes`` returns the classes for a member that is being started."""
        super().__init__(directory, size, disks=disks, seed=seed, **options)
        self.classes = classes

    async def __aenter__(self) -> ActorGroup:
        return self

    def machine(self, node: NodeId) -> Streams:
        return Streams(self.classes(node))

    def digests(self) -> dict[NodeId, object]:
        """Return the digest of each running member's state."""
        return {name: node.machine.digest() for name, node in self.nodes.items()}  # type: ignore[attr-defined]


@asynccontextmanager
async def actor_processes(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[Processes]:
    """Run three RUNNING processes with a ledger each; all of them are ended afterwards."""
    # Beside the settings, where the nodes find it from any working directory.
    shutil.copy(str(ledger.__file__), directory / "ledger_of_a_test.py")
    chosen = {"actors.ledger": "ledger_of_a_test:Ledger", "wal.segment_bytes": "1048576", **settings}
    async with running(directory, settings=chosen) as processes:
        yield processes


@dataclass
class Callers:
    """Callers of a ledger that each wait for the result before they send the next command."""

    client: Client
    names: list[str]
    padding: bytes = b""
    acknowledged: dict[str, int] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    refused: int = 0
    """Number of refusals because the log was full; those commands were certainly not written, and were sent again."""

    async def send(self, each: int) -> None:
        """Let every caller send ``each`` more commands."""
        await asyncio.gather(*(self._send(name, each) for name in self.names))

    async def _send(self, name: str, count: int) -> None:
        ledger = self.client.actor("ledger", Ledger)
        for _ in range(count):
            number = self.acknowledged.get(name, 0) + 1
            self.results.append(await self._enter(ledger, name, number))
            self.acknowledged[name] = number

    async def _enter(self, ledger: type[Ledger], name: str, number: int) -> int:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                try:
                    return await ledger.enter(name, number, self.padding)
                except StorageFullError:
                    self.refused += 1
                    await asyncio.sleep(0.02)

    async def check(self, client: Client | None = None) -> None:
        """Check the state: every command was applied once and in order, and every result is a different one."""
        total, last, wrong = await (client or self.client).actor("ledger", Ledger).state()
        assert wrong == []
        assert last == self.acknowledged
        assert total == sum(last.values())
        assert sorted(self.results) == list(range(1, total + 1))


def files_in(directory: Path) -> Iterator[os.stat_result]:
    """Return the size and other metadata of each file in a directory, any of which may disappear meanwhile."""
    for entry in os.scandir(directory):
        try:
            yield entry.stat()
        except FileNotFoundError:
            continue


def bytes_in(directory: Path) -> tuple[int, int]:
    """Return the total size of a directory's files, by their lengths and by their disk blocks."""
    found = list(files_in(directory))
    return sum(each.st_size for each in found), sum(each.st_blocks * 512 for each in found)
