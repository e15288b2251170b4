"""The base class of peers whose servers are child processes."""

from __future__ import annotations

from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import Servers

__all__ = ["Spawned"]


class Spawned(Peer):
    """A peer with child processes. ``start`` must set ``_servers``, which is None before."""

    _servers: Servers | None = None

    @property
    def servers(self) -> Servers:
        """The processes; available after ``start``."""
        assert self._servers is not None, "start the peer first"
        return self._servers

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running servers, by name."""
        return self._servers.pids() if self._servers is not None else {}

    async def kill(self, server: str) -> None:
        """End a server by SIGKILL."""
        await self.servers.kill(server)

    async def start_again(self) -> None:
        """Start the servers that are not running."""
        self.servers.spawn_missing()
