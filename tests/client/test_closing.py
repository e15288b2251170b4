from __future__ import annotations

import asyncio
import random

import pytest

from viewstamp.client.aio import Client
from viewstamp.errors import ClosedError
from viewstamp.host.network import RealNetwork


async def test_an_append_whose_turn_came_in_the_moment_of_closing_is_told_that_nothing_was_sent() -> None:
    """It had waited for its topic's id, which the close had forgotten by the time it went on."""
    async with Client(["127.0.0.1:1"], network=RealNetwork(), entropy=random.Random(1)) as client:
        appending = asyncio.ensure_future(client.append("orders", b"x"))
        await asyncio.sleep(0)
        (place,) = client._line.places
        place.turn.set_result(None)
    with pytest.raises(ClosedError):
        await appending
