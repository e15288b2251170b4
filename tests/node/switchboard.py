"""Real sockets behind addresses that stay: no port is fixed, and links between members can be cut.

Members are known by addresses that are in the log for good; the port that the system gave a node today is known here
only. So a cluster's directory can be started anywhere, any number of times, also twice at once on two switchboards.
"""

from __future__ import annotations

from viewstamp.host.interfaces import Connection, ConnectionHandler, Listener, Network
from viewstamp.host.network import Accept, RealNetwork

CLIENT = "client"
"""Who connects for the clients of a test."""


class Switchboard:
    """Where everybody really listens, and who cannot reach whom."""

    def __init__(self) -> None:
        self.ports: dict[str, str] = {}
        """The real address behind each address."""
        self.open: list[tuple[str, str, Connection]] = []
        """Who connected to which address; also those that have ended since."""
        self._cut: set[tuple[str, str]] = set()

    def network(self, who: str) -> Network:
        """Return the network as ``who`` sees it."""
        return _Line(self, who)

    def cut(self, source: str, address: str) -> None:
        """End the connections that ``source`` opened to ``address``, and let it open no new ones."""
        self._cut.add((source, address))
        for who, where, connection in self.open:
            if (who, where) == (source, address):
                connection.abort()

    def heal(self) -> None:
        """Let everybody connect to everybody."""
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
