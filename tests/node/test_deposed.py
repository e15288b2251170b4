"""The answers to callers that wait for a leader when it is deposed (protocol rule 12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.caller import body_of, call
from tests.node.group import Group
from viewstamp.ids import Sequence, SessionId, TopicId
from viewstamp.wire.batch import build_batch
from viewstamp.wire.frame import FrameKind


@pytest.mark.slow
async def test_callers_of_a_deposed_leader_get_outcome_unknown(tmp_path: Path) -> None:
    """The records that it appended may be on other disks, and the next leader may commit them."""
    async with Group(tmp_path, 3) as group:
        await group.run()
        await group.client().create_topic("orders")
        old = (await group.leader()).options.node
        async with call(group, old) as caller:
            session = SessionId(body_of(await caller.ask(FrameKind.OPEN_SESSION))["session"])
            group.isolate(old)
            batch = build_batch([b"x"], topic=TopicId(1), session=session, sequence=Sequence(1))
            answer = await caller.ask(FrameKind.APPEND, batch.buffer)
            assert (answer.kind, answer.body["error"]) == (FrameKind.ERROR, "OutcomeUnknownError")
            assert "may still be committed" in answer.body["message"]
