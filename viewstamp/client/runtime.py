"""The interface between a client and its event loop: futures, timers, tasks and bytes. Protocols only.

The rules of a client import neither asyncio nor trio, because they are written once for both. ``aio.py`` implements
the interface by the methods of asyncio's event loop, and ``viewstamp.trio`` has its own implementation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from viewstamp.host.interfaces import Buffer, ConnectionHandler
from viewstamp.ids import CertificateName

__all__ = ["Dialer", "Future", "Runtime", "TimerHandle", "Wire"]

ResultT = TypeVar("ResultT")


class Future(Protocol[ResultT]):
    """A result that may not be there yet. At most one task awaits it. Cancelling that task cancels the future."""

    def done(self) -> bool:
        """Return whether it has a result or an error, or was cancelled."""
        ...

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        ...

    def result(self) -> ResultT:
        """Return the result or raise the error. Only if it is done."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error; None = it has a result. Only if it is done and not cancelled."""
        ...

    def set_result(self, result: ResultT, /) -> None:
        """Set the result. Only if it is not done. The task that awaits it runs in a later turn."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Set an error. Only if it is not done. The task that awaits it runs in a later turn."""
        ...

    def cancel(self) -> bool:
        """Cancel the future, and the task that computes its result. Returns False if it was done already, else True."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have ``callback`` called with this future, in a turn after the one in which it is done."""
        ...

    def __await__(self) -> Generator[Any, Any, ResultT]:
        """Wait for it."""
        ...


class TimerHandle(Protocol):
    """A call that is scheduled."""

    def cancel(self) -> None:
        """Cancel the call. Idempotent, also after it was made."""
        ...


class Runtime(Protocol):
    """An event loop.

    Callbacks are called between the steps of tasks, never inside a call of the runtime. A runtime belongs to one
    thread. ``begin`` is called before everything else, and may be called again.
    """

    @property
    def create_future(self) -> Callable[[], Future[Any]]:
        """Creates a future. A property, so that it can be the loop's own method, because each record needs a future."""
        ...

    @property
    def time(self) -> Callable[[], float]:
        """Returns the seconds since a fixed moment; never decreases."""
        ...

    def begin(self) -> None:
        """Attach to the running event loop."""
        ...

    @property
    def call_soon(self) -> Callable[[Callable[[], object]], object]:
        """Calls its argument in the next turn, in the order of the requests."""
        ...

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Call ``callback`` after ``seconds``."""
        ...

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run ``work`` in a task. Closing the client, or cancelling the future, cancels it."""
        ...

    def create_lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock that one task at a time can hold."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``, and for at least one turn."""
        ...

    async def within(self, seconds: float, work: Awaitable[ResultT]) -> ResultT:
        """Await ``work`` for at most ``seconds``; ``math.inf`` = no limit. Cancels it if it is late or is cancelled.

        Raises:
          TimeoutError: it took longer.
        """
        ...


class Wire(Protocol):
    """A connection, as far as a client needs it."""

    identity: CertificateName | None
    """The part of a cluster that the certificate of the other end names; None = the connection has no TLS."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers`` (they must not change afterwards). Never awaits; dropped silently once closed."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued here that the operating system has not taken."""
        ...

    def close(self) -> None:
        """Send the queued bytes, then close; the handler's ``on_closed`` follows. Idempotent."""
        ...

    def abort(self) -> None:
        """Close at once; the handler's ``on_closed`` follows. Idempotent."""
        ...


class Dialer(Protocol):
    """A network, as far as a client needs it. Clients with equal networks (``==``) share connections."""

    def __hash__(self) -> int:
        """Equal for equal networks."""
        ...

    async def connect(self, address: str, accept: Callable[[Wire], ConnectionHandler]) -> Wire:
        """Connect to ``host:port``; ``accept`` returns the handler before any byte arrives. Safe to cancel.

        Raises:
          OSError: no server answers there.
        """
        ...
