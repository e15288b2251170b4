"""Log lines about other processes, limited so that no process can fill the log."""

from __future__ import annotations

import asyncio

from viewstamp.errors import BrokenRuleError, ViewstampError
from viewstamp.host.logger import Logger

__all__ = ["Complaints"]

_QUIET_SECONDS = 10.0
"""Time after a line in which further complaints of its kind are only counted."""
_KINDS_MAX = 256
"""Number of kinds of complaints that are distinguished; further ones count as one kind."""


class Complaints:
    """Logs warnings about connections: the first of each kind immediately, then one in ten seconds.

    A kind is the event, the other side, and the rule that was broken. The port of the other side does not count,
    because each connection comes from another one.
    """

    def __init__(self, log: Logger) -> None:
        self._logger = log
        self._kinds: dict[tuple[str, str, str], _Kind] = {}

    def warning(self, event: str, peer: str, error: ViewstampError) -> None:
        """Log ``event`` with the reason, or count it. ``peer`` is an id, or an address. Never awaits."""
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
    """The time of the next log line of a kind, and the number of complaints since the last one."""

    def __init__(self) -> None:
        self.quiet_until = 0.0
        self.unsaid = 0
