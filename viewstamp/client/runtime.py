"""What a client stands on, whichever library runs it: waiting, timers and bytes. Protocols only.

The rules of a client are written once, against this seam, and import neither asyncio nor trio. A runtime is small:
``aio.py`` hands out what asyncio's event loop has; ``viewstamp.trio`` brings its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from viewstamp.host.interfaces import Buffer, ConnectionHandler

__all__ = ["Dialer", "Future", "Runtime", "TimerHandle", "Wire"]

ResultT = TypeVar("ResultT")


class Future(Protocol[ResultT]):
    """A result that is not there yet. One task at most awaits it; when that task is cancelled, so is the future."""

    def done(self) -> bool:
        """Say whether there is a result, an error, or nobody who wants one any more."""
        ...

    def cancelled(self) -> bool:
        """Say whether it was cancelled."""
        ...

    def result(self) -> ResultT:
        """Return the result, or raise the error, of one that is done."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error of one that is done and not cancelled; None = there is a result."""
        ...

    def set_result(self, result: ResultT, /) -> None:
        """Give the result; not to one that is done. Whoever waits runs in a later turn."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Give an error; not to one that is done. Whoever waits runs in a later turn."""
        ...

    def cancel(self) -> bool:
        """Cancel it, and the work that makes the result; say whether it was not done."""
        ...

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have ``callback`` called with this future in a later turn than that in which it is done."""
        ...

    def __await__(self) -> Generator[Any, Any, ResultT]:
        """Wait for it."""
        ...


class TimerHandle(Protocol):
    """A call that is going to be made."""

    def cancel(self) -> None:
        """Do not make it. Idempotent, and harmless after it was made."""
        ...


class Runtime(Protocol):
    """The turns of an event loop.

    Whatever is called back is called between the steps of tasks, never inside a call to the runtime. All of it belongs
    to one thread. ``begin`` comes before everything else, and may come again.
    """

    @property
    def create_future(self) -> Callable[[], Future[Any]]:
        """What makes a future. A loop's own method can stand here, without a call between: it is made per record."""
        ...

    @property
    def time(self) -> Callable[[], float]:
        """What tells the seconds since some fixed moment; never goes back."""
        ...

    def begin(self) -> None:
        """Belong to the loop that runs."""
        ...

    @property
    def call_soon(self) -> Callable[[Callable[[], object]], object]:
        """Calls its argument in the next turn, in the order of the requests."""
        ...

    def call_later(self, seconds: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Call back after ``seconds``."""
        ...

    def spawn(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run ``work`` beside the caller; the client's end cancels it. Cancelling the future cancels the work."""
        ...

    def create_lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock that one task at a time is inside of."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; at least one turn."""
        ...

    async def within(self, seconds: float, work: Awaitable[ResultT]) -> ResultT:
        """Await ``work`` for at most ``seconds``; ``math.inf`` = for ever. Cancelled, or too late, it cancels it.

        Raises:
          TimeoutError: it took longer.
        """
        ...


class Wire(Protocol):
    """What a client needs of a connection."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers`` (they must not change afterwards). Never awaits; dropped silently once closed."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued here that the operating system has not taken."""
        ...

    def abort(self) -> None:
        """Close at once; the handler's ``on_closed`` follows. Idempotent."""
        ...


class Dialer(Protocol):
    """What a client needs of a network. Clients whose networks are equal (``==``) share connections."""

    def __hash__(self) -> int:
        """Equal for equal networks."""
        ...

    async def connect(self, address: str, accept: Callable[[Wire], ConnectionHandler]) -> Wire:
        """Connect to ``host:port``; ``accept`` returns the handler before any byte arrives. Safe to cancel.

        Raises:
          OSError: nobody answers there.
        """
        ...
