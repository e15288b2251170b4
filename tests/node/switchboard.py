"""Real sockets behind stable addresses: no port is fixed, and links between members can be cut.

The log stores the addresses of members permanently. The port that the system assigned to a node today is stored here
only. So a cluster's directory can be started on any machine, any number of times, and even twice at once on two
switchboards.
"""

from __future__ import annotations

from viewstamp.host.interfaces import Connection, ConnectionHandler, Listener, Network
from viewstamp.host.network import Accept, RealNetwork

CLIENT = "client"
"""The source of the connections that a test's clients open."""


class Switchboard:
    """Maps stable addresses to real ones, and cuts links."""

    def __init__(self) -> None:
        self.ports: dict[str, str] = {}
        """The real address behind each address."""
        self.open: list[tuple[str, str, Connection]] = []
        """Every connection with its source and its address; closed ones stay in the list."""
        self._cut: set[tuple[str, str]] = set()

    def network(self, source: str) -> Network:
        """Return the network as the member or client ``source`` sees it."""
        return _Line(self, source)

    def cut(self, source: str, address: str) -> None:
        """Close the connections from ``source`` to ``address``, and refuse new ones."""
        self._cut.add((source, address))
        for who, where, connection in self.open:
            if (who, where) == (source, address):
                connection.abort()

    def heal(self) -> None:
        """Allow all connections again."""
        self._cut.clear()

    def is_cut(self, source: str, address: str) -> bool:
        return (source, address) in self._cut


class _Line(Network):
    def __init__(self, board: Switchboard, who: str) -> None:
        self._board = board
        self._who = who
        self._real = RealNetwork()

    async def listen(self, address: str, accept: Accept) -> Listener:
        listener = await self._real.listen("127.0.0.1:0", accept)
        self._board.ports[address] = listener.address
        return _Listener(self._board, address, listener)

    async def connect(self, address: str, accept: Accept) -> Connection:
        board = self._board
        if board.is_cut(self._who, address) or address not in board.ports:
            raise ConnectionRefusedError(f"{self._who} cannot reach {address}")

        def take(connection: Connection) -> ConnectionHandler:
            handler = accept(connection)
            board.open.append((self._who, address, connection))
            return handler

        connection = await self._real.connect(board.ports[address], take)
        if board.is_cut(self._who, address):
            connection.abort()
        return connection


class _Listener(Listener):
    def __init__(self, board: Switchboard, address: str, real: Listener) -> None:
        self.address = address
        self._board = board
        self._real = real

    async def close(self) -> None:
        self._board.ports.pop(self.address, None)
        await self._real.close()
