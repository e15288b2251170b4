"""An S3 server in a process of its own, and a proxy in front of it that injects faults of networks and stores."""

from __future__ import annotations

import http.client
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import DEVNULL, PIPE, Popen

from tests.signals import default_signals

__all__ = ["Fault", "Proxy", "Request", "answer", "running_proxy", "running_server"]

_PIECE = 64 * 1024


@dataclass(frozen=True)
class Request:
    """A request of a client."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What the proxy does with a request.

    ``is_lost``: the connection ends before the request is forwarded. ``without``: headers that are not forwarded.
    ``answer``: this status and body instead of the store's. ``is_answer_lost``: the connection ends behind the store's
    answer. ``is_cut``: half of the body of the answer is sent. ``surplus``: that many bytes follow the body of the
    answer, as if they belonged to it. ``waits_for``: the request is held back until then.
    """

    is_lost: bool = False
    without: tuple[str, ...] = ()
    answer: tuple[int, str] | None = None
    is_answer_lost: bool = False
    is_cut: bool = False
    surplus: int = 0
    waits_for: threading.Event | None = None


def answer(status: int, code: str, message: str = "as the test wants it") -> Fault:
    """Return the fault of a store that answers with an error."""
    return Fault(answer=(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"))


@dataclass
class Proxy:
    """``fault`` decides for each request; ``requests`` are those that came, in their order.

    ``surplus_bytes``: of all that faults have added, the bytes that were sent.
    """

    url: str
    fault: Callable[[Request], Fault | None] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    surplus_bytes: int = 0

    def of(self, method: str, part: str = "") -> list[Request]:
        """Return the requests with a method, whose path contains ``part``."""
        return [each for each in self.requests if each.method == method and part in each.path]

    def first(self, method: str, part: str, fault: Fault, times: int = 1) -> None:
        """Inject a fault into the next requests with a method, whose path contains ``part``."""
        left = [times]

        def decide(request: Request) -> Fault | None:
            if request.method == method and part in request.path and left[0]:
                left[0] -= 1
                return fault
            return None

        self.fault = decide


@contextmanager
def running_server() -> Iterator[str]:
    """Run moto's server in a process; yields its URL."""
    with default_signals():
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = Popen(command, stdout=DEVNULL, stderr=PIPE, text=True)
    assert process.stderr is not None
    reader = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        for line in process.stderr:
            if found := re.search(r"Running on (http://\S+)", line):
                break
        else:
            raise AssertionError("the server did not start")
        reader.start()  # Its log would fill the pipe.
        yield found[1]
    finally:
        process.kill()
        process.wait()
        if reader.ident:
            reader.join()
        process.stderr.close()


@contextmanager
def running_proxy(server: str) -> Iterator[Proxy]:
    """Run a proxy in front of a server, in threads of this process."""
    target = server.removeprefix("http://")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(self.command, self.path, dict(self.headers))
            proxy.requests.append(request)
            fault = proxy.fault(request) or Fault()
            if fault.waits_for is not None:
                fault.waits_for.wait(20)
            if fault.is_lost:
                self.close_connection = True
                return
            if fault.answer is not None:
                status, text = fault.answer
                self._answer(status, {"Content-Type": "application/xml"}, text.encode(), len(text.encode()))
                return
            headers = {key: value for key, value in request.headers.items() if key not in fault.without}
            connection = http.client.HTTPConnection(target, timeout=60)
            connection.request(self.command, self.path, body, headers)
            found = connection.getresponse()
            data = found.read()
            connection.close()
            if fault.is_answer_lost:
                self.close_connection = True
                return
            left_out = ("connection", "content-length")
            kept = {key: value for key, value in found.getheaders() if key.lower() not in left_out}
            size = int(found.getheader("Content-Length") or len(data)) + fault.surplus
            self._answer(found.status, kept, data[: len(data) // 2] if fault.is_cut else data, size)
            for _ in range(0, fault.surplus, _PIECE):
                self.wfile.write(bytes(_PIECE))
                proxy.surplus_bytes += _PIECE
            self.close_connection = self.close_connection or fault.is_cut

        def _answer(self, status: int, headers: dict[str, str], data: bytes, size: int) -> None:
            self.send_response_only(status)
            for key, value in {**headers, "Content-Length": str(size)}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815

        def handle(self) -> None:
            with suppress(OSError):  # The client has gone.
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        proxy = Proxy(f"http://127.0.0.1:{running.server_address[1]}")
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            running.shutdown()
            thread.join()
