from __future__ import annotations

import asyncio
import random

import pytest

from viewstamp.client.aio import Client
from viewstamp.errors import ClosedError
from viewstamp.host.network import RealNetwork


async def test_an_append_that_waits_for_its_turn_while_the_client_is_closed_is_told_that_nothing_was_sent() -> None:
    async with Client(["127.0.0.1:1"], network=RealNetwork(), entropy=random.Random(1)) as client:
        appending = asyncio.ensure_future(client.append("orders", b"x"))
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await appending
