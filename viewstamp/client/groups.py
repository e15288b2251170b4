"""The groups that a client uses: group 0 from the start, another one from the first call that needs it.

| event | effect |
| --- | --- |
| a call needs another group for the first time | the parts for it (``group.py``) are made. They open a connection if \
there is something to send |
| no call has needed a group for ``IDLE_SECONDS``, and nothing of it is unanswered | its parts end: connections and \
the session in memory. The group ends the session later, as that of any client that is gone |
| a call needs the group again | new parts, with a new session. A token of the old session is still answered |
| the client is closed | all parts end, and a further call gets ClosedError |
| a group has no majority | its calls wait until their timeouts. It has a session, unanswered batches and a share of \
``bytes_in_flight_max``, so calls to other groups do not wait |

The numbers of sessions, sequences and topics count in each group by themselves. So everything that outlives the parts
names the group beside them, as ``OutcomeToken`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from viewstamp.client.checks import as_token
from viewstamp.client.group import GroupParts
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Outcome
from viewstamp.client.routing import closed_error
from viewstamp.client.runtime import Runtime, TimerHandle
from viewstamp.errors import OutcomeToken
from viewstamp.ids import GROUP_0, GroupId

__all__ = ["IDLE_SECONDS", "Groups"]

IDLE_SECONDS = 60.0
"""Time without a call after which the parts of another group than 0 end."""
_LOOKS = 4
"""How many times in ``IDLE_SECONDS`` the groups are looked at. So parts end up to a quarter later."""


class Groups:
    """Makes and ends the parts of a client for each group.

    Invariants:
      * parts with a call in progress, or with an append that waits or is unanswered, are not ended
      * the shares of ``bytes_in_flight_max`` are equal, and together at most that; a share that was lowered counts for
        further appends
    """

    def __init__(self, runtime: Runtime, options: ClientOptions, make: Callable[[GroupId], GroupParts]) -> None:
        """Begin with group 0; ``make`` composes the parts of a group."""
        self.group_0 = make(GROUP_0)
        """The parts for group 0, which do not end before the client."""
        self._parts = {GROUP_0: self.group_0}
        self._runtime = runtime
        self._bytes_max = options.bytes_in_flight_max
        self._make = make
        self._timer: TimerHandle | None = None
        self._is_closed = False

    @contextmanager
    def call(self, group: GroupId) -> Iterator[GroupParts]:
        """Return the parts for a group, which do not end during the call. Raises ClosedError."""
        parts = self.begin(group)
        parts.calls += 1
        try:
            yield parts
        finally:
            parts.calls -= 1
            parts.idle_since = self._runtime.time()

    def begin(self, group: GroupId) -> GroupParts:
        """Return the parts for a group, for a call that is put into a batch or into a queue at once.

        As long as something of them waits or is unanswered they do not end. Raises ClosedError.
        """
        return self.at_hand(group) or self._begin(group)

    def at_hand(self, group: GroupId) -> GroupParts | None:
        """Return the parts for a group, as :meth:`begin`; None = there are none."""
        parts = self._parts.get(group)
        if parts is not None:
            parts.idle_since = self._runtime.time()
        return parts

    async def outcome(self, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        """Find the outcome of an append or a command that raised OutcomeUnknownError. The answer is final.

        Example::

            try:
                await client.append("orders", b"one", timeout=5.0)
            except viewstamp.OutcomeUnknownError as error:
                outcome = await client.outcome(error.token)
                print(outcome.answer, outcome.receipts)

        If this client still retries the batch, the call waits for its answer. Otherwise the leader answers, and fences
        the batch if it has not been applied, so that it never will be. Asking again is harmless. If the call is
        cancelled, the batch may be fenced or not.

        Args:
          token: the ``token`` of the error, from this client or another one.
          timeout: seconds from now; None = the client's default.

        Raises:
          OutcomeUnknownError: no answer in time; ask again with the same token.
          RequestError: it is no token; if it is None, repeat the call that failed.
        """
        self.group_0.router.start()
        with self.call(as_token(token).group) as parts:
            return await parts.appends.outcome(token, timeout=timeout)

    def close(self) -> None:
        """End the parts for all groups; see :meth:`GroupParts.close`. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for parts in self._parts.values():
            parts.close()

    def _begin(self, group: GroupId) -> GroupParts:
        if self._is_closed:
            raise closed_error()
        self._runtime.begin()
        parts = self._parts[group] = self._make(group)
        self._divide()
        if self._timer is None:
            self._timer = self._runtime.call_later(IDLE_SECONDS / _LOOKS, self._look)
        return parts

    def _look(self) -> None:
        """End the parts that were not used for long enough."""
        self._timer = None
        now = self._runtime.time()
        for group, parts in list(self._parts.items()):
            if group != GROUP_0 and parts.is_unused and now - parts.idle_since >= IDLE_SECONDS:
                del self._parts[group]
                parts.close()
        self._divide()
        if len(self._parts) > 1:
            self._timer = self._runtime.call_later(IDLE_SECONDS / _LOOKS, self._look)

    def _divide(self) -> None:
        """Give each group its share of the bytes that the client may hold."""
        for parts in self._parts.values():
            parts.sender.hold(max(1, self._bytes_max // len(self._parts)))
