"""The health port: ``GET /livez`` and ``GET /readyz`` over HTTP/1.1, for the program that restarts a node.

Every answer closes its connection. 200 = all checks hold, 503 = one does not; the body names each check with its
reason, as text, or as JSON for a request with ``Accept: application/json`` or ``?format=json``.

The port has no authentication, so it is small on purpose: it reads one request of at most ``_REQUEST_BYTES_MAX`` bytes
within ``_REQUEST_SECONDS`` on each of ``_CONNECTIONS_MAX`` connections. A further connection ends the oldest one,
because a process that holds connections open could otherwise make a healthy node look dead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from viewstamp.errors import ConfigError
from viewstamp.host.interfaces import Connection, ConnectionHandler, Listener, Network
from viewstamp.node.health.checks import Check

__all__ = ["PATHS", "HealthPort"]

PATHS: Final = ("/livez", "/readyz")
_REQUEST_BYTES_MAX: Final = 8192
_REQUEST_SECONDS: Final = 5.0
_CONNECTIONS_MAX: Final = 16
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HealthPort:
    """Answers the requests of all connections."""

    def __init__(
        self, checks: Mapping[str, Callable[[], Sequence[Check]]], *, request_seconds: float = _REQUEST_SECONDS
    ) -> None:
        """Prepare the port; ``checks`` has the function for each of ``PATHS``."""
        self._checks = checks
        self.request_seconds = request_seconds
        """The time in which a connection has to send its request and read the response."""
        self._listener: Listener | None = None
        self.requests: dict[_HealthRequest, None] = {}
        """The open connections, the oldest first."""

    async def open(self, address: str, network: Network) -> None:
        """Listen. Raises ConfigError if ``address`` is in use, or is not of this machine."""
        try:
            self._listener = await network.listen(address, self.accept)
        except ConfigError as error:
            raise ConfigError(
                f"[node] health: {error.message}", remedy=error.remedy.replace("[node] listen", "[node] health")
            ) from error

    @property
    def address(self) -> str:
        """Return ``host:port`` as bound; "" = it does not listen."""
        return self._listener.address if self._listener is not None else ""

    async def close(self) -> None:
        """Stop listening, and end all connections. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        for request in list(self.requests):
            request.end()

    def accept(self, connection: Connection) -> ConnectionHandler:
        """Take a connection."""
        if len(self.requests) >= _CONNECTIONS_MAX:
            next(iter(self.requests)).end()
        request = _HealthRequest(self, connection)
        self.requests[request] = None
        return request

    def answer(self, head: bytes) -> bytes:
        """Return the response to a request, given the bytes up to its empty line."""
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, "not an HTTP/1.1 request\n")
        path, _, query = words[1].partition("?")
        check = self._checks.get(path)
        if check is None:
            return _response(404, f"there are {' and '.join(PATHS)}\n")
        if words[0] != "GET":
            return _response(405, "only GET\n", "Allow: GET\r\n")
        checks = check()
        code = 200 if all(each.is_ok for each in checks) else 503
        if query == "format=json" or any(map(_accepts_json, fields)):
            listed = [{"name": each.name, "ok": each.is_ok, "reason": each.reason} for each in checks]
            body = json.dumps({"ok": code == 200, "checks": listed}) + "\n"
            return _response(code, body, content="application/json")
        return _response(code, "".join(f"{'ok' if c.is_ok else 'failed':<6} {c.name}: {c.reason}\n" for c in checks))


def _accepts_json(field: str) -> bool:
    name, _, value = field.partition(":")
    return name.lower() == "accept" and "application/json" in value.lower()


def _response(code: int, body: str, fields: str = "", *, content: str = "text/plain; charset=utf-8") -> bytes:
    data = body.encode("utf-8")
    head = (
        f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {content}\r\nContent-Length: {len(data)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{fields}\r\n"
    )
    return head.encode("latin-1") + data


class _HealthRequest:
    """One connection: one request, one response.

    Invariants:
      * it ends within ``_REQUEST_SECONDS``, whatever the other side sends or does not read
    """

    def __init__(self, port: HealthPort, connection: Connection) -> None:
        self._port = port
        self._connection = connection
        self._received = b""
        self._is_answered = False
        self._late = asyncio.get_running_loop().call_later(port.request_seconds, self.end)

    def end(self) -> None:
        """End the connection immediately."""
        self._port.requests.pop(self, None)
        self._connection.abort()

    def on_bytes(self, data: bytes) -> None:
        """Take bytes of the request; answer it when its head is complete, and ignore the rest."""
        if self._is_answered:
            return
        self._received += data
        head, found, _ = self._received.partition(b"\r\n\r\n")
        if found and len(head) <= _REQUEST_BYTES_MAX:
            self._answer(self._port.answer(head))
        elif len(self._received) > _REQUEST_BYTES_MAX:
            self._answer(_response(431, f"a request may have {_REQUEST_BYTES_MAX} bytes\n"))

    def on_closed(self, _: BaseException | None) -> None:
        """Forget the connection."""
        self._late.cancel()
        self._port.requests.pop(self, None)

    def _answer(self, response: bytes) -> None:
        self._is_answered, self._received = True, b""
        self._connection.send([response])
        self._connection.close()
