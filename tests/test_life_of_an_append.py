"""The table of owners in docs/architecture.md is executed, so that a longer path of an append needs a reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from viewstamp.client.aio import Client
from viewstamp.sim.swarm import Swarm
from viewstamp.sim.world import World

ROOT = Path(__file__).parent.parent


def owners_in_the_table() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \d \| `([^`]+)` \|", text, flags=re.MULTILINE)


def test_an_append_passes_the_six_owners_of_the_table_in_their_order() -> None:
    owners = owners_in_the_table()
    assert len(owners) == 6
    value = b"the append that is followed"
    seen: list[str] = []

    def holds_the_append(frame: FrameType) -> bool:
        """Return whether a function was called with the append, as a record, a batch or a frame's bytes."""
        for item in list(frame.f_locals.values()):
            for part in item if isinstance(item, list | tuple) else (item,):
                raw = getattr(part, "buffer", None) or getattr(part, "payload", None) or part
                if isinstance(raw, bytes | bytearray | memoryview) and value in bytes(raw):
                    return True
                if any(value in bytes(batch.buffer) for batch in getattr(part, "batches", None) or ()):
                    return True
        return False

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        for owner in owners:
            if event == "call" and path.endswith(owner) and owner not in seen and holds_the_append(frame):
                seen.append(owner)

    # One node only, because a follower's hops 3 to 5 would mix with the leader's.
    world = World(1, Swarm(nodes=1, faults={}))
    for member in world.members:
        world.bring_up(member)

    async def append() -> int:
        network = world.network.view("client")
        async with Client(world.addresses, network=network, entropy=world.loop.entropy("client")) as client:
            await client.create_topic("orders")
            sys.setprofile(note)
            try:
                return (await client.append("orders", value)).position
            finally:
                sys.setprofile(None)

    assert world.loop.run_until_complete(append()) == 1
    world.close()
    assert seen == owners
