"""Reports the state of a node's process to systemd, by the protocol of ``sd_notify(3)``; without systemd, nothing.

| message | sent |
| --- | --- |
| ``STATUS=``, ``EXTEND_TIMEOUT_USEC=`` | every 10 s while the node reads or repairs its log, which has no time limit |
| ``READY=1`` | when the log is replayed and the port is open. It does not wait for a majority: the first of three \
machines to start would otherwise be killed while it waits for the others |
| ``WATCHDOG=1`` | in half of the unit's ``WatchdogSec=``, as long as every check of ``/livez`` holds |
| ``STOPPING=1`` | when the node begins to stop |
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from viewstamp.node.node import Node

__all__ = ["ServiceManager"]

_EVERY_SECONDS: Final = 10.0
_EXTENSION_SECONDS: Final = 60


class ServiceManager:
    """The service manager that started this process.

    Invariants:
      * no call blocks or raises: a message that cannot be sent is dropped
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Read ``NOTIFY_SOCKET`` and the watchdog's variables from the environment."""
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        """Empty if no service manager waits for messages; an abstract address begins with a zero byte."""
        self._watchdog_seconds = 0.0
        """The longest silence that is not taken for a hang; 0 = there is no watchdog."""
        with suppress(ValueError):
            if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
                self._watchdog_seconds = int(environment.get("WATCHDOG_USEC", "0")) / 1e6

    def tell(self, *messages: str) -> None:
        """Send messages such as ``READY=1``."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(messages).encode(), self._address)

    async def extend_start(self, node: Node) -> None:
        """Ask for more time, again and again, until cancelled."""
        while self._address:
            repair = node.group.repairer.progress
            doing = repair.sentence if repair is not None else "the log is being replayed"
            self.tell(f"STATUS={doing}", f"EXTEND_TIMEOUT_USEC={_EXTENSION_SECONDS * 1_000_000}")
            await asyncio.sleep(_EVERY_SECONDS)

    async def feed_watchdog(self, node: Node) -> None:
        """Report that the node is alive, and whether it is ready, again and again, until cancelled."""
        while self._address:
            if all(check.is_ok for check in node.check_alive()):
                failed = [check.reason for check in node.check_ready() if not check.is_ok]
                self.tell("WATCHDOG=1", f"STATUS={failed[0] if failed else 'ready'}")
            await asyncio.sleep(min(_EVERY_SECONDS, self._watchdog_seconds / 2 or _EVERY_SECONDS))
