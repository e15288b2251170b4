"""A node refuses to start at an address other than the recorded one, because its directory may be a copy."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.node.group import PATIENCE_SECONDS, POLL_SECONDS, Group, not_on_the_loop
from tests.node.hooked_disk import HookedDisk
from viewstamp.errors import MovedError, StorageFullError, UnavailableError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId
from viewstamp.node import address_check
from viewstamp.wire.handshake import Welcome

NEW = "127.0.0.1:13"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_check, "_ASK_SECONDS", 0.05)


async def move(group: Group, name: str, address: str) -> None:
    """Give a member another address. Repeats it while a leader is naming the disks of members that it has just met."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await (await group.leader()).group.change_members("add", name, address, "")
                return
            except UnavailableError:
                await asyncio.sleep(POLL_SECONDS)


async def test_the_only_member_refuses_another_address_and_moves_by_a_record(tmp_path: Path) -> None:
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.stop("n1")
        with pytest.raises(MovedError, match=r"the membership has n1 at 127\.0\.0\.1:1, but .* says 127") as caught:
            await group.start("n1", listen=NEW)
        assert "viewstamp node readdress" in caught.value.remedy
        assert "viewstamp cluster fork" in caught.value.remedy
        await group.run()
        await move(group, "n1", NEW)
        await group.stop("n1")
        await group.run("n1", listen=NEW)
        assert group.nodes[NodeId("n1")].group.membership.voters == {"n1": NEW}


async def test_a_voter_at_an_unrecorded_address_is_refused_and_continues_at_the_recorded_one(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.stop("n3")
        with pytest.raises(MovedError, match="nothing was started"):
            await group.start("n3", listen=NEW)
        assert NEW not in group.board.ports
        await group.run("n3")


async def test_a_voter_moved_while_it_was_down_starts_at_the_new_address_despite_its_older_log(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.stop("n3")
        await move(group, "n3", NEW)
        await group.run("n3", listen=NEW)
        await group.stop("n2")
        await group.client().create_topic("t")  # Without n3 there is no majority.
        await group.stop("n3")
        await group.start("n2")
        await group.run("n3", listen=NEW)  # Now its own log contains the new address.


async def test_a_member_that_replays_its_log_is_asked_again_for_the_newer_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes start at the same time, and the moved one has the shortest log: the others answer by their settings."""
    may_replay, answers = threading.Event(), []
    may_replay.set()

    def hook(call: str, path: str, caller: str) -> bool:
        if "/n3/" not in path and "/wal" in path:
            may_replay.wait(PATIENCE_SECONDS)
        return not_on_the_loop(call, path, caller)

    def noted(welcome: Welcome) -> tuple[dict[str, str], int, bool]:
        answers.append(welcome.node)
        if {"n1", "n2"} <= set(answers):
            may_replay.set()
        return members_of(welcome)

    members_of = address_check._members_of
    monkeypatch.setattr(address_check, "_ASK_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(address_check, "_members_of", noted)
    async with Group(tmp_path, disks=lambda _: HookedDisk(RealDisk(), hook)) as group:
        await group.run()
        await group.stop("n3")
        await move(group, "n3", NEW)
        await group.stop("n1", "n2")
        may_replay.clear()
        await asyncio.gather(group.start("n1"), group.start("n2"), group.run("n3", listen=NEW))
        assert group.nodes[NodeId("n3")].group.membership.voters[NodeId("n3")] == NEW


async def test_no_member_starts_when_all_were_moved_until_the_old_addresses_are_restored(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.stop(*group.nodes)
        for name, address in group.members.items():
            with pytest.raises(MovedError, match="nothing was started") as caught:
                await group.start(name, listen=f"{address}0")
            assert f"put {address} back" in caught.value.remedy
        await group.run()


async def test_new_settings_that_contradict_themselves_are_refused_before_a_record_is_made_of_them(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        with pytest.raises(MovedError, match=r"\[cluster\] members has n1 at 127\.0\.0\.1:1"):
            await group.start("n1", listen=NEW)
        await group.run()


# -- The other members in the settings: the second table of the module, row by row. -----------------------------------

OLD, OTHER = "127.0.0.1:3", "127.0.0.1:33"


def with_n3_at(group: Group, address: str) -> dict[NodeId, str]:
    return {**group.members, NodeId("n3"): address}


def remembering(tmp_path: Path) -> Group:
    return Group(tmp_path, stores_members=True)


async def test_settings_without_a_present_member_and_with_a_former_one_start(tmp_path: Path) -> None:
    async with remembering(tmp_path) as group:
        await group.run()
        await group.stop("n1")
        settings = {name: at for name, at in group.members.items() if name != "n3"} | {NodeId("n9"): OTHER}
        await group.run("n1", members=settings)


async def test_settings_that_are_older_than_a_move_start_and_may_change_elsewhere(tmp_path: Path) -> None:
    async with remembering(tmp_path) as group:
        await group.run()
        await move(group, "n3", OTHER)
        await group.caught_up()
        await group.stop("n2")
        await group.run("n2")  # Its settings have the old address of n3, as at its last start.
        await group.stop("n2")
        await group.run("n2", members={**group.members, NodeId("n9"): NEW})
        await group.stop("n2")
        await group.run("n2", members=with_n3_at(group, OTHER))  # They were corrected.
        await group.stop("n2")
        with pytest.raises(MovedError, match=f"n3 at {OLD} instead of {OTHER}"):
            await group.start("n2")  # An old settings file does not move n3 back.


async def test_settings_that_are_newer_than_the_own_log_start_if_a_member_says_so(tmp_path: Path) -> None:
    async with remembering(tmp_path) as group:
        await group.run()
        await group.stop("n2")
        await move(group, "n3", OTHER)
        await group.run("n2", members=with_n3_at(group, OTHER))


async def test_settings_that_contradict_the_record_since_the_last_start_are_refused(tmp_path: Path) -> None:
    """A copy that keeps its own address would otherwise act on the members of the original."""
    async with remembering(tmp_path) as group:
        await group.run()
        await group.stop("n2")
        with pytest.raises(MovedError, match="nothing was started") as caught:
            await group.start("n2", members=with_n3_at(group, OTHER))
        assert f"n3 at {OTHER} instead of {OLD}" in caught.value.message
        assert f"put n3 = {OLD} back" in caught.value.remedy
        assert "viewstamp node readdress on the machine of n3 first" in caught.value.remedy
        assert "viewstamp cluster fork" in caught.value.remedy
        with pytest.raises(MovedError):  # A refused start is not remembered.
            await group.start("n2", members=with_n3_at(group, OTHER))
        await group.run("n2")


async def test_settings_that_the_operator_confirmed_by_a_move_of_this_node_start(tmp_path: Path) -> None:
    async with remembering(tmp_path) as group:
        await group.run()
        await group.stop("n2")
        settings = with_n3_at(group, OTHER)
        directory = group.options("n2").data_dir
        address_check.store_settings_members(RealDisk(), directory, {str(name): at for name, at in settings.items()})
        await group.run("n2", members=settings)


@pytest.mark.parametrize("rest", [None, b"{", b"[1]"])
async def test_settings_of_an_unknown_last_start_are_accepted_with_a_warning(
    tmp_path: Path, rest: bytes | None
) -> None:
    async with Group(tmp_path) as group:
        await group.run()
        await group.stop("n2")
        if rest is not None:
            (tmp_path / "n2" / address_check.SETTINGS_MEMBERS_NAME).write_bytes(rest)
        await group.run("n2", members=with_n3_at(group, OTHER), stores_members=True)
        assert "the settings have members at other addresses" in group.journal.tail(1000)
        await group.stop("n2")
        await group.run("n2", members=with_n3_at(group, OTHER), stores_members=True)


async def test_a_full_disk_does_not_keep_a_node_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageFullError("no space")

    monkeypatch.setattr(address_check, "create_anew", full)
    async with remembering(tmp_path) as group:
        await group.run()
        assert "members in the settings were not stored" in group.journal.tail(1000)
