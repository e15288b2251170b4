"""Waits until a topic is archived, and shows each change of the state meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from viewstamp.errors import OutcomeUnknownError, UnavailableError, UnknownTopicError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = ["archived"]

_LOOK_SECONDS: Final = 5.0
"""Time limit of the first call. A leader that has no answer, or no majority, is reported after this time. The limit is
twice as long for each further call ..."""
_LOOK_SECONDS_MAX: Final = 60.0
"""... up to this, because each call about a topic with streams has an entry in the audit log."""
_LEAST_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.5
"""Pause after a call that failed; twice as long after each further one with the same error ..."""
_PAUSE_SECONDS_MAX: Final = 10.0
"""... up to this."""

ResultT = TypeVar("ResultT")


async def archived(
    client: Client, topic: str, before: int | None, delay: float | None, timeout: float, show: Callable[[str], None]
) -> int | dict[int, int]:
    """Archive a topic, and return its archived end, or that of each of its streams.

    Args:
      client: asks the leader.
      topic: the topic, with or without streams.
      before: archive the records before this position; None = all that it has now.
      delay: as that of ``Client.archive_topic``.
      timeout: seconds from now.
      show: gets why it is not archived yet, each time when that changes.

    Raises:
      UnavailableError, OutcomeUnknownError: it is not archived in time; the last reason. Others: as
        ``Client.archive_topic``, at once.
    """
    wait = _Wait(timeout, show)
    is_spread, end = await wait.until(lambda seconds: _kind_of(client, topic, seconds))
    before = before or end or None
    if is_spread:
        return await wait.until(
            lambda seconds: client.archive_spread_topic(topic, before, delay=delay, timeout=seconds)
        )
    return await wait.until(lambda seconds: client.archive_topic(topic, before, delay=delay, timeout=seconds))


async def _kind_of(client: Client, topic: str, seconds: float) -> tuple[bool, int]:
    """Return whether a topic has streams, and the position behind its last record. Raises UnknownTopicError."""
    try:
        return False, (await client.describe_topic(topic, timeout=seconds)).last_position + 1
    except UnknownTopicError as error:
        try:
            return True, (await client.describe_spread_topic(topic, timeout=seconds)).next_position
        except UnknownTopicError:
            raise error from None


class _Wait:
    """Calls that are made until they succeed or the time is over, with growing pauses."""

    def __init__(self, timeout: float, show: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._show = show
        self._reason: UnavailableError | OutcomeUnknownError | None = None
        """Why it is not archived yet, as it was shown."""
        self._is_unanswered = False
        self._pause = 0.0
        self._look = _LOOK_SECONDS

    async def until(self, call: Callable[[float], Awaitable[ResultT]]) -> ResultT:
        """Make a call, which gets its time limit, until it succeeds. Raises the last reason why it did not."""
        while True:
            left = self._deadline - self._loop.time()
            try:
                return await call(max(min(left, self._look), _LEAST_SECONDS))
            except (UnavailableError, OutcomeUnknownError) as error:
                self._look = min(2 * self._look, _LOOK_SECONDS_MAX)
                self._note(error)
                left = self._deadline - self._loop.time()
                if left <= 0:
                    raise (self._reason or error) from error
            await asyncio.sleep(min(self._pause, left))

    def _note(self, error: UnavailableError | OutcomeUnknownError) -> None:
        # A copy of the request that is sent just before the end of a call has no answer, which says nothing.
        was_unanswered, self._is_unanswered = self._is_unanswered, isinstance(error, OutcomeUnknownError)
        if self._is_unanswered and not was_unanswered:
            return
        if self._reason is not None and str(error) == str(self._reason):
            self._pause = min(2 * self._pause, _PAUSE_SECONDS_MAX)
        else:
            self._reason, self._pause = error, _PAUSE_SECONDS
            self._show(str(error))
