"""The reply to one ask: the half that travels inside the message. It does not depend on mailboxes."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from viewstamp.errors import OutcomeUnknownError, UnavailableError

__all__ = ["Reply"]

ResultT = TypeVar("ResultT")


class Reply(Generic[ResultT]):
    """The actor's end of one ask: it answers now, in a later turn, or from a callback on the loop.

    The asker holds the future, the message holds the reply. If a reply is lost, the deadline, or the actor's failure or
    stop, resolves the future.

    Invariants:
      * the actor answers at most once
      * once the future is done (answered, too late, closed, given up by the asker) an answer changes nothing
    """

    __slots__ = ("_actor", "_changes", "_future", "_is_answered", "deadline")

    def __init__(self, future: asyncio.Future[ResultT], *, actor: str, changes: bool) -> None:
        self._future = future
        self._actor = actor
        self._changes = changes
        self._is_answered = False
        self.deadline: asyncio.TimerHandle | None = None
        """The timer that will call ``expire``; None = the asker set no deadline."""

    def __repr__(self) -> str:
        return f"<Reply of {self._actor} {'open' if self.is_open else 'done'}>"

    @property
    def is_open(self) -> bool:
        """Whether the asker still waits: False once it is answered, too late, closed or given up."""
        return not self._future.done()

    def resolve(self, result: ResultT) -> None:
        """Answer with a result. Has no effect if the asker no longer waits."""
        self._answer()
        if not self._future.done():
            self._future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Answer with an error, which the asker's ``await`` raises. Has no effect if the asker no longer waits."""
        self._answer()
        if not self._future.done():
            self._future.set_exception(error)

    def _answer(self) -> None:
        assert not self._is_answered, f"actor {self._actor!r} answered the same message twice"
        self._is_answered = True

    def expire(self, seconds: float) -> None:
        """End an ask at its deadline. The actor may still carry out the message."""
        if self._changes:
            self._give_up(
                OutcomeUnknownError(
                    f"actor {self._actor!r} did not answer within {seconds} s; the request may still be carried out",
                    token=None,
                    remedy="ask the actor whether it was carried out before you repeat the request",
                )
            )
        else:
            self._give_up(
                UnavailableError(
                    f"actor {self._actor!r} did not answer within {seconds} s", remedy="try again, perhaps elsewhere"
                )
            )

    def close(self, error: UnavailableError, *, was_taken: bool) -> None:
        """End an ask of an actor that stopped or failed. If it had taken the message, it may have carried it out."""
        if was_taken and self._changes:
            unknown = OutcomeUnknownError(
                f"{error.message} before it answered; the request may have been carried out",
                token=None,
                remedy="ask the actor whether it was carried out before you repeat the request",
            )
            unknown.__cause__ = error
            self._give_up(unknown)
        else:
            self._give_up(error)

    def refuse(self, error: UnavailableError) -> None:
        """End an ask that the mailbox did not accept."""
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._future.done():
            return
        self._future.set_exception(error)
        # Mark the exception as retrieved: an asker may drop its future without looking at it.
        self._future.exception()
