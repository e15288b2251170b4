"""The base class of peers whose servers are child processes."""

from __future__ import annotations

from benchmarks.peers.peer import Peer
from benchmarks.peers.processes import Servers

__all__ = ["Spawned"]


class Spawned(Peer):
    """``start`` sets ``_servers``; before it there are none."""

    _servers: Servers | None = None

    @property
    def servers(self) -> Servers:
        """The processes, once they were started."""
        assert self._servers is not None, "it is started first"
        return self._servers

    def pids(self) -> dict[str, int]:
        """Return the servers that run."""
        return self._servers.pids() if self._servers is not None else {}

    async def kill(self, server: str) -> None:
        """End a server by SIGKILL."""
        await self.servers.kill(server)

    async def start_again(self) -> None:
        """Start the servers that do not run."""
        self.servers.spawn_missing()
