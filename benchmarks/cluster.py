"""Three members of a cluster of one's own: the leader in this process, the others in processes of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from viewstamp.embed import EmbeddedNode, open_node
from viewstamp.errors import UnavailableError
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node_process import logger

__all__ = ["Members", "cpu_seconds", "own_cluster", "own_directory"]

_WAIT_SECONDS = 30.0
_PATIENCE = {"timeouts.election_ms": "5000"}
"""A machine that is busy with other things shall not cost the member in this process the lead."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Members:
    """The leader, which is embedded here, and the processes of the others."""

    def __init__(self, node: EmbeddedNode, others: list[int]) -> None:
        self.node = node
        self.others = others
        """Process ids."""

    def check_leading(self) -> None:
        """Raise UnavailableError unless the member in this process leads: another's figures are of no use."""
        if self.node.node_status["role"] != "leader":
            raise UnavailableError("the member in this process does not lead any more", remedy="run it again")


@contextmanager
def own_directory() -> Iterator[Path]:
    """Make a directory in ./viewstamp-data, which is no memory, and remove it in the end with all that is in it."""
    parent = Path("viewstamp-data").absolute()
    parent.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="benchmark-", dir=parent))
    directory.chmod(0o711)  # A peer that refuses root runs as another user, who must get through to its own files.
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if not any(parent.iterdir()):
            parent.rmdir()


@asynccontextmanager
async def own_cluster(directory: Path, settings: Mapping[str, str], *, thread: bool) -> AsyncIterator[Members]:
    """Run three members; the first, which campaigns first, leads in this process.

    Args:
      directory: for their files and data.
      settings: ``section.key`` to text, for all of them.
      thread: the leader has a loop and a thread of its own, as programs have it by default.

    Raises:
      UnavailableError: another one was elected, or a member did not start.
    """
    local = LocalCluster.open_or_create(directory, 3, {**_PATIENCE, **settings})
    first, *others = local.nodes.values()
    try:
        for node in others:
            local.spawn(node)
        async with open_node(first.file, thread=thread, timeout=_WAIT_SECONDS, log=logger("error")) as leader:
            await local.wait_running(others, _WAIT_SECONDS)
            pids = [node.pid() for node in others]
            members = Members(leader, [pid for pid in pids if pid is not None])
            members.check_leading()
            yield members
    finally:
        for node in others:
            await node.kill()


def cpu_seconds(pid: int) -> float:
    """Return how much processor time a process has used so far; 0.0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
