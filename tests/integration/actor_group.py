"""Real nodes that run a ledger each: in this event loop, or as processes."""

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
"""How long a caller puts up with refusals, restarts and all."""

Classes = Mapping[str, type[ReplicatedActor]]


class ActorGroup(Group):
    """Its members run the classes that they are given, a ledger each where nothing else is said."""

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
        """See ``Group``; ``classes`` says what a member runs that is started now."""
        super().__init__(directory, size, disks=disks, seed=seed, **options)
        self.classes = classes

    async def __aenter__(self) -> ActorGroup:
        return self

    def machine(self, node: NodeId) -> Streams:
        return Streams(self.classes(node))

    def digests(self) -> dict[NodeId, object]:
        """Return each running member's state, as it says it itself."""
        return {name: node.machine.digest() for name, node in self.nodes.items()}  # type: ignore[attr-defined]


@asynccontextmanager
async def actor_processes(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[Processes]:
    """Run three processes with a ledger each, RUNNING; none is left behind."""
    # Beside the settings: the nodes find it wherever they are started.
    shutil.copy(str(ledger.__file__), directory / "ledger_of_a_test.py")
    chosen = {"actors.ledger": "ledger_of_a_test:Ledger", "wal.segment_bytes": "1048576", **settings}
    async with running(directory, settings=chosen) as processes:
        yield processes


@dataclass
class Callers:
    """So many callers of a ledger, each of which waits for the result before it sends the next command."""

    client: Client
    names: list[str]
    padding: bytes = b""
    acknowledged: dict[str, int] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    refused: int = 0
    """How often the log was full: certainly nothing was written then, and they tried again."""

    async def send(self, each: int) -> None:
        """Let every caller send ``each`` commands more."""
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
        """Ask for the state: everything was applied once, in order, and every result is a different one."""
        total, last, wrong = await (client or self.client).actor("ledger", Ledger).state()
        assert wrong == []
        assert last == self.acknowledged
        assert total == sum(last.values())
        assert sorted(self.results) == list(range(1, total + 1))


def files_in(directory: Path) -> Iterator[os.stat_result]:
    """Return what the system says of each file in a directory, of which any may vanish meanwhile."""
    for entry in os.scandir(directory):
        try:
            yield entry.stat()
        except FileNotFoundError:
            continue


def bytes_in(directory: Path) -> tuple[int, int]:
    """Return what all files of a directory take: by their lengths, and by the blocks of the disk."""
    found = list(files_in(directory))
    return sum(each.st_size for each in found), sum(each.st_blocks * 512 for each in found)
