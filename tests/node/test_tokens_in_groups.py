"""Access control in other groups than 0, on real nodes: each request by its right, and the audit log in group 0."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.node.caller import call
from tests.node.group import wait_for
from tests.node.test_stream_topics import Spreading
from viewstamp.client import Client
from viewstamp.client.audit_notes import note_in_group
from viewstamp.errors import AccessDeniedError, RequestError
from viewstamp.ids import GroupId, NodeId
from viewstamp.wire.answers import error_from
from viewstamp.wire.archive_requests import ArchiveTopic, FindOrphans
from viewstamp.wire.frame import GROUPS_VERSION, FrameKind
from viewstamp.wire.requests import TransferLeadership
from viewstamp.wire.token_requests import ARCHIVE_RUN, REMOVE_ORPHANS


class Guarded(Spreading):
    """Three nodes with two groups, a spread topic over them, and access control; ``ops`` is the administrator."""

    async def guard(self) -> Client:
        await self.run()
        first = self.client()
        _, self.ops = await first.create_token("ops", ["administer"])
        admin = self.client(seed=2, token=self.ops)
        self.groups = [(await admin.place_group(name)).id for name in ("s1", "s2")]
        for placed in self.groups:
            await wait_for(lambda placed=placed: self.leader_of(placed) is not None, self.journal.tail)
        await admin.create_spread_topic("orders", 2, groups=self.groups)
        await self.have_streams(self.groups[0], "orders.1")
        await self.have_streams(self.groups[1], "orders.2")
        return admin

    async def holder(self, admin: Client, name: str, *roles: str) -> Client:
        _, text = await admin.create_token(name, roles)
        return self.client(seed=len(name) + 10, token=text)


async def is_denied(asked: Callable[[], Awaitable[object]]) -> bool:
    try:
        await asked()
    except AccessDeniedError:
        return True
    return False


@pytest.mark.slow
async def test_each_request_of_a_spread_topic_needs_its_right(tmp_path: Path) -> None:
    async with Guarded(tmp_path) as group:
        admin = await group.guard()
        writer = await group.holder(admin, "writer", "append:orders")
        reader = await group.holder(admin, "reader", "read:orders")
        other = await group.holder(admin, "other", "append:orders.*", "read:orders.*", "call")

        async def read(client: Client, stream: int | None = None) -> list[bytes]:
            return [record.value async for record in client.read("orders", stream=stream)]

        receipt = await writer.append("orders", b"a", key=b"k", ordered=True)
        assert receipt.global_position == 1
        requests: dict[str, tuple[Callable[[Client], Awaitable[object]], str]] = {
            "append": (lambda client: client.append("orders", b"b", stream=1), "writer admin"),
            "ordered": (lambda client: client.append("orders", b"c", stream=2, ordered=True), "writer admin"),
            "read": (lambda client: read(client), "reader admin"),
            "read a stream": (lambda client: read(client, 2), "reader admin"),
            "position": (lambda client: client.find_global_position("orders", receipt), "writer reader admin"),
            "describe": (lambda client: client.describe_spread_topic("orders"), "writer reader admin"),
            "configure": (lambda client: client.configure_spread_topic("orders", retain_bytes=1 << 20), "admin"),
            "trim": (lambda client: client.trim_spread_topic("orders", 1), "admin"),
        }
        clients = {"writer": writer, "reader": reader, "other": other, "admin": admin}
        found: dict[str, list[str]] = {what: [] for what in requests}
        for what, (ask, _) in requests.items():
            for name, client in clients.items():
                if not await is_denied(lambda ask=ask, client=client: ask(client)):
                    found[what].append(name)
        assert found == {what: names.split() for what, (_, names) in requests.items()}
        # An append without ordered=True gets its place later; the ordered one behind it in the same stream has one now.
        await admin.append("orders", b"d", stream=1, ordered=True)
        assert sorted(await read(reader)) == [b"a", b"b", b"b", b"c", b"c", b"d"]
        await admin.revoke_token("writer")
        async with call(group, group.leader_of(group.groups[0]).options.node, greet=False) as caller:
            await caller.hello(group=group.groups[0], version=GROUPS_VERSION)
            for kind, fields in (
                (FrameKind.OPEN_SESSION, {}),
                (FrameKind.LIST_TOPICS, {"stale": True}),
                (FrameKind.CREATE_SNAPSHOT, {}),
                (FrameKind.TRANSFER_LEADERSHIP, {"node": "n1"}),
            ):
                assert (await caller.ask(kind, **fields)).body["error"] == "AccessDeniedError"
        with pytest.raises(AccessDeniedError, match="was revoked"):
            await writer.append("orders", b"d", stream=1)


async def test_tokens_and_audited_settings_are_changed_in_group_0_only(tmp_path: Path) -> None:
    async with Guarded(tmp_path, 1) as group:
        await group.guard()
        placed = group.groups[0]
        async with call(group, "n1", greet=False) as caller:
            await caller.hello(group=placed, version=GROUPS_VERSION, token=group.ops)
            for kind, fields in (
                (FrameKind.LIST_TOKENS, {}),
                (FrameKind.LIST_AUDIT, {"since": 0}),
                (FrameKind.REVOKE_TOKEN, {"token": "0" * 12, "only_old": False}),
                (FrameKind.TRIM_TOPIC, {"name": "orders.1", "position": 1}),
                (FrameKind.NOTE_TRANSFER, {"group": placed, "node": "n1"}),
                (FrameKind.CHANGE_MEMBERS, {"action": "remove", "node": "n1", "address": "", "replaces": ""}),
            ):
                refused = error_from((await caller.ask(kind, **fields)).body)
                assert isinstance(refused, RequestError)
                assert not isinstance(refused, AccessDeniedError)
                assert re.search("group", refused.message), refused


async def test_what_is_archived_in_a_group_is_in_the_audit_log_first(tmp_path: Path) -> None:
    async with Guarded(tmp_path, 1) as group:
        admin = await group.guard()
        placed = GroupId(group.groups[0])
        asked = ArchiveTopic(name="orders.1", end=1), FindOrphans(remove=True)
        for action, subject, request in zip((ARCHIVE_RUN, REMOVE_ORPHANS), ("orders.1", "remove"), asked, strict=True):
            router = admin._groups.group_0.router
            noted = await note_in_group(router, placed, action, subject, 10.0)
            assert (await admin.list_audit())[-1][3:] == (action, f"of group {placed}: {subject}")
            async with call(group, "n1", greet=False) as caller:
                await caller.hello(group=placed, version=GROUPS_VERSION, token=group.ops)
                for index, why in ((0, "has no entry 0 for this archive"), (noted, "archive")):
                    answer = await caller.ask(request.kind, **request.to_map(), noted=index)
                    assert why in answer.body["message"]
                    assert ("has no entry" in answer.body["message"]) is (index == 0), (
                        "it goes on to the archive itself"
                    )
        before = len(await admin.list_audit())
        with pytest.raises(RequestError, match="archive"):
            await admin.find_stream_orphans(placed, remove=True)
        assert len(await admin.list_audit()) == before + 1
        async with call(group, "n1", greet=False) as caller:
            await caller.hello(token=group.ops)
            refused = await caller.ask(FrameKind.NOTE_TRANSFER, group=placed, node="n1", action="topic create")
            assert "'topic create' is no action that is noted for a group" in refused.body["message"]


async def test_an_administrator_moves_leaders_and_the_audit_log_has_it_first(tmp_path: Path) -> None:
    async with Guarded(tmp_path) as group:
        admin = await group.guard()
        placed = group.groups[0]
        leader = (await wait_for(lambda: group.leader_of(placed), group.journal.tail)).options.node
        target = next(name for name in group.members if name != leader)

        async def transfer(noted: int, seed: int, token: str = "") -> str:
            async with call(group, leader, greet=False) as caller:
                await caller.hello(group=placed, version=GROUPS_VERSION, token=token or group.ops)
                asked = TransferLeadership(node=target, noted=noted)
                return str((await caller.ask(asked.kind, **asked.to_map())).body.get("message", ""))

        assert "has no entry 0 for this leader transfer" in await transfer(0, 1)
        noted = await admin._balance._note(GroupId(placed), NodeId(target), 10.0)
        assert (await admin.list_audit())[-1][1:] == (
            noted,
            f"token ops ({(await admin.list_tokens())[0].id})",
            "leader transfer",
            f"of group {placed} to {target}",
        )
        elsewhere = await admin._balance._note(group.groups[1], NodeId(target), 10.0)
        assert f"has no entry {elsewhere}" in await transfer(elsewhere, 2)
        _, second = await admin.create_token("second", ["administer"])
        assert f"has no entry {noted}" in await transfer(noted, 3, second)
        assert await transfer(noted, 4) == ""
        await wait_for(
            lambda: (led := group.leader_of(placed)) is not None and led.options.node == target, group.journal.tail
        )
