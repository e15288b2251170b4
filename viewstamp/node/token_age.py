"""The age of the tokens on a node, for the requests of clients in other groups than 0.

Group 0 has the tokens. A node that hosts another group checks requests by its own applied state of group 0, which may
lag. So it confirms that state while clients use the group: it asks the leader of group 0 for an index, as for a
linearizable read, and applies the log up to it. A request is checked only by tokens that were confirmed in the last
``TOKENS_SECONDS``, at the moment of the check. This time is longer than the election of a leader, so that requests go
on during a change of the leader of group 0.

| event | effect |
| --- | --- |
| the node lags, is cut off from group 0, or group 0 has no majority | after ``TOKENS_SECONDS`` all requests of \
clients in other groups are refused with UnavailableError, until the state is confirmed again |
| the process is stopped, or its machine is suspended | the time goes on (``Clock.uptime``), so the next request waits |
| the wall clock jumps | it is not used |
| a confirmation is lost or late | the next one follows; the time counts from before the question |
| nobody uses the groups | nothing is asked; the next request waits for one confirmation |
| access control is off | nothing is asked, and groups do not depend on group 0 |
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from viewstamp.errors import UnavailableError, ViewstampError
from viewstamp.host.interfaces import Clock
from viewstamp.node.access import Credentials, Gate
from viewstamp.node.group import Group

__all__ = ["TOKENS_SECONDS", "TokenAge"]

TOKENS_SECONDS = 5.0
"""A request in another group than 0 is permitted by no older state of the tokens."""
_REFRESH_SECONDS = 1.5
_WAIT_SECONDS = 1.0
"""The longest wait of a request, so that a client can try another node within its timeout."""
_KEEP_SECONDS = 660.0
"""The state is kept fresh for so long after a request, because a request may be held for 600 s and is checked again."""


class TokenAge:
    """Keeps the tokens of group 0 fresh while clients use other groups. Make one for each node.

    Invariants:
      * everything that was committed in group 0 at ``_known_at`` has been applied here
    """

    def __init__(self, group: Group, clock: Clock) -> None:
        """Begin with unknown tokens; ``group`` is group 0 of this node."""
        self._group = group
        self._clock = clock
        self._known_at = self._used_at = -math.inf
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        """Whether the newest round found no leader. Requests are refused at once then, so that no caller times out."""
        self._is_stopped = False

    @property
    def _is_known(self) -> bool:
        return self._clock.uptime() - self._known_at <= TOKENS_SECONDS

    def use(self, gate: Gate, credentials: Credentials) -> bool:
        """Return whether the tokens are fresh enough for a request of a caller, and keep them so for a while.

        A token that is not known here is looked for once more for each connection, because a caller without a known
        token does not own the session that it uses.
        """
        self._used_at = self._clock.uptime()
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._keep())
        return self._is_known and (credentials.is_confirmed or bool(gate.owner(credentials)))

    def check(self) -> None:
        """Raise UnavailableError if the tokens may be older than ``TOKENS_SECONDS``."""
        if not self._is_known:
            raise self._unknown()

    async def confirm(self, credentials: Credentials) -> None:
        """Wait until everything that was committed in group 0 before this call has been applied here, for a caller.

        Cancellable at any time.

        Raises:
          UnavailableError: group 0 has no leader that this node can reach; nothing was done.
        """
        if self._is_failing:
            raise self._unknown()
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._confirm()
        except (UnavailableError, TimeoutError) as error:
            raise self._unknown() from error
        credentials.is_confirmed = True

    async def stop(self) -> None:
        """Stop confirming. Idempotent."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _keep(self) -> None:
        """Confirm the tokens until no request has used them for a long time; the root of its task."""
        try:
            while self._clock.uptime() - self._used_at < _KEEP_SECONDS:
                try:
                    await self._confirm()
                except ViewstampError:
                    self._is_failing = True
                await asyncio.sleep(_REFRESH_SECONDS)
        finally:
            self._task = None

    async def _confirm(self) -> None:
        began = self._clock.uptime()
        await self._group.reading.confirm()
        self._known_at = max(self._known_at, began)
        self._is_failing = False

    def _unknown(self) -> UnavailableError:
        return UnavailableError(
            f"{self._group.options.node} cannot confirm the tokens, because it finds no leader of group 0; nothing was"
            " done",
            remedy="try again; start a majority of the members of group 0, or restore the links of this node to them",
        )
