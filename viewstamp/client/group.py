"""The parts of a client for one group: its connections, the search for its leader, its session and its appends."""

from __future__ import annotations

import random
from collections.abc import Callable

from viewstamp.client.appends import Appends
from viewstamp.client.links import Links
from viewstamp.client.options import ClientOptions
from viewstamp.client.pool import ConnectionPool, LeaderConnection
from viewstamp.client.router import Router
from viewstamp.client.routing import Addresses, LeaderFinder, Roster
from viewstamp.client.runtime import Dialer, Runtime
from viewstamp.client.sender import Sender
from viewstamp.ids import GROUP_0, GroupId

__all__ = ["GroupParts"]


class GroupParts:
    """One group, as a client uses it. Made by ``groups.py``.

    Invariants:
      * no connection is opened before the first call
    """

    def __init__(
        self,
        runtime: Runtime,
        links: Callable[[], Links],
        network: Dialer,
        addresses: Addresses,
        roster: Roster,
        *,
        entropy: random.Random,
        options: ClientOptions,
        group: GroupId = GROUP_0,
    ) -> None:
        """Compose the parts; ``addresses`` are those of this group, and ``roster`` is that of the client."""
        self.group = group
        self.calls = 0
        """Calls that are in progress."""
        self.idle_since = 0.0
        """When the last call ended, on the runtime's clock."""
        finder = LeaderFinder(addresses, entropy=entropy, back_off=(options.back_off_min, options.back_off_max))
        self.pool = ConnectionPool(
            runtime,
            network,
            addresses,
            links,
            entropy=entropy,
            options=options,
            roster=roster,
            on_open=lambda connection: self.sender.on_connection(connection),
            group=group,
        )
        self.router = Router(runtime, options, self.pool, LeaderConnection(runtime, self.pool, finder, options))
        self.sender = Sender(runtime, options, self.router, group)
        self.appends = Appends(runtime, self.router, self.sender)

    @property
    def is_unused(self) -> bool:
        """Whether no call is in progress, and nothing waits to be sent or to be answered."""
        return self.calls == 0 and self.sender.is_idle

    def close(self) -> None:
        """Fail all calls at once: with ClosedError if never sent, else with OutcomeUnknownError. Idempotent."""
        if not self.router.is_closed:
            self.router.is_closed = True
            if self.router.is_started:
                self.sender.close()
                self.router.close()
