"""A node refuses to start at an address other than the recorded one, because its directory may be a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.group import Group
from viewstamp.errors import MovedError
from viewstamp.ids import NodeId
from viewstamp.node import address_check

NEW = "127.0.0.1:13"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_check, "_ASK_SECONDS", 0.05)


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
        await group.nodes[NodeId("n1")].group.change_members("add", "n1", NEW, "")
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
        await (await group.leader()).group.change_members("add", "n3", NEW, "")
        await group.run("n3", listen=NEW)
        await group.stop("n2")
        await group.client().create_topic("t")  # Without n3 there is no majority.
        await group.stop("n3")
        await group.start("n2")
        await group.run("n3", listen=NEW)  # Now its own log contains the new address.


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
