"""Log lines about other processes, of which no process can cause more than a few."""

from __future__ import annotations

import asyncio

from viewstamp.errors import BrokenRuleError, ViewstampError
from viewstamp.host.logger import Logger

__all__ = ["Complaints"]

_QUIET_SECONDS = 10.0
"""How long the same complaint about the same process is counted only."""
_KINDS_MAX = 256
"""How many kinds of complaints are told apart; further ones count as one kind."""


class Complaints:
    """Warnings about what came over connections: the first of each kind at once, then one in ten seconds.

    A kind is the event, the other side, and the rule that was broken. The port of the other side does not count,
    because each connection comes from another one.
    """

    def __init__(self, log: Logger) -> None:
        self._logger = log
        self._kinds: dict[tuple[str, str, str], _Kind] = {}

    def warning(self, event: str, peer: str, error: ViewstampError) -> None:
        """Logger ``event`` with the reason, or count it. ``peer`` is an id, or an address. Never awaits."""
        rule = error.rule if isinstance(error, BrokenRuleError) else type(error).__name__
        key = (event, peer.rpartition(":")[0] or peer, rule)
        if key not in self._kinds and len(self._kinds) >= _KINDS_MAX:
            key = (event, "", "")
        kind = self._kinds.setdefault(key, _Kind())
        now = asyncio.get_running_loop().time()
        if now < kind.quiet_until:
            kind.unsaid += 1
            return
        unsaid = {"unsaid": kind.unsaid} if kind.unsaid else {}
        kind.quiet_until, kind.unsaid = now + _QUIET_SECONDS, 0
        self._logger.warning(event, peer=peer, rule=rule, reason=str(error), **unsaid)


class _Kind:
    """When the next complaint of a kind is logged, and how many have not been since the last one."""

    def __init__(self) -> None:
        self.quiet_until = 0.0
        self.unsaid = 0
