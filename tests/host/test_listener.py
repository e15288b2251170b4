"""A listener that is closed while peers connect leaves no socket behind."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any

from viewstamp.host.network import RealNetwork, parse_address


class _Deaf:
    def on_bytes(self, data: bytes) -> None:
        """Ignore all bytes."""

    def on_closed(self, error: BaseException | None) -> None:
        """Ignore the end."""


async def test_connections_accepted_in_the_turn_of_the_close_are_not_left_open() -> None:
    """The event loop can no longer attach them.

    So it must not have accepted them by then, or must have attached them.
    """
    loop = asyncio.get_running_loop()
    unheard: list[dict[str, Any]] = []
    loop.set_debug(True)  # asyncio reports such a connection in debug mode only.
    loop.set_exception_handler(lambda _, context: unheard.append(context))
    for turns in range(40):
        listener = await RealNetwork().listen("127.0.0.1:0", lambda _: _Deaf())
        callers = [socket.socket() for _ in range(3)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(parse_address(listener.address))
        for _ in range(turns % 4):
            await asyncio.sleep(0)
        await listener.close()
        for caller in callers:
            caller.close()
    await asyncio.sleep(0.01)
    gc.collect()  # An open socket without a reference is a warning, and so a failure.
    assert unheard == []
