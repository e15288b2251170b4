"""A client's requests about members and leaders, to nodes that speak the real frames."""

from __future__ import annotations

import pytest

from tests.client.cluster import Cluster
from viewstamp.client.results import Members
from viewstamp.errors import ConfigError, RequestError, UnavailableError
from viewstamp.wire.frame import FrameKind


def addresses(cluster: Cluster) -> dict[str, str]:
    return {node.name: node.address for node in cluster.nodes}


async def test_a_member_is_added_as_a_learner_that_joins_and_asking_again_changes_nothing(cluster: Cluster) -> None:
    client = cluster.client()
    assert await client.list_members() == Members(voters=addresses(cluster))
    added = await client.add_member("n4", "127.0.0.1:4")
    assert added == Members(voters=addresses(cluster), learners={"n4": "127.0.0.1:4"}, joining={"n4": ""}, generation=1)
    assert added.is_changing
    assert added.addresses == {**addresses(cluster), "n4": "127.0.0.1:4"}
    assert await client.add_member("n4", "127.0.0.1:4") == added == await client.list_members()
    assert (await client.add_member("n4", "127.0.0.1:4", voter=False)).joining == {}
    assert (await client.add_member("n5", "127.0.0.1:5", replaces="n2")).joining == {"n5": "n2"}


async def test_the_leader_gets_the_requested_change(cluster: Cluster) -> None:
    client = cluster.client()
    await client.add_member("n4", "127.0.0.1:4", voter=False)
    await client.add_member("n5", "127.0.0.1:5", replaces="n2")
    await client.remove_member("n4")
    asked = [body for kind, body in cluster.bodies if kind == FrameKind.CHANGE_MEMBERS]
    # Members that do not lead got the request, too.
    told = dict.fromkeys(tuple(body[name] for name in ("action", "node", "address", "replaces")) for body in asked)
    assert list(told) == [
        ("learn", "n4", "127.0.0.1:4", ""),
        ("replace", "n5", "127.0.0.1:5", "n2"),
        ("remove", "n4", "", ""),
    ]


async def test_a_change_whose_answer_was_lost_is_asked_for_again_and_is_no_error(cluster: Cluster) -> None:
    client = cluster.client()
    cluster.losses += [FrameKind.CHANGE_MEMBERS, FrameKind.CHANGE_MEMBERS]
    assert "n4" in (await client.add_member("n4", "127.0.0.1:4")).learners
    assert set((await client.remove_member("n3")).voters) == {"n1", "n2"}
    assert not cluster.losses
    with pytest.raises(RequestError, match="n3 is no member"):
        await client.remove_member("n3")


async def test_the_leaders_reason_for_a_refusal_reaches_the_caller(cluster: Cluster) -> None:
    client = cluster.client()
    cluster.refuse_changes = UnavailableError("another change is under way", remedy="wait for it")
    with pytest.raises(UnavailableError, match=r"^the members are not changed: another change is under way$") as caught:
        await client.add_member("n4", "127.0.0.1:4", timeout=0.3)
    assert caught.value.remedy == "wait for it"


async def test_an_invalid_address_is_refused_before_any_request(cluster: Cluster) -> None:
    client = cluster.client()
    with pytest.raises(ConfigError, match="is no address"):
        await client.add_member("n4", "somewhere")
    with pytest.raises(RequestError, match="must be text"):
        await client.add_member(4, "127.0.0.1:4")  # type: ignore[arg-type]
    assert cluster.bodies == []


async def test_the_leadership_goes_to_the_given_member(cluster: Cluster) -> None:
    client = cluster.client()
    assert await client.transfer_leadership("n3") == "n3"
    assert await client.transfer_leadership() == "n2"
    assert cluster.leader is cluster.nodes[1]


async def test_the_lack_of_a_leader_is_reported_in_time(cluster: Cluster) -> None:
    client = cluster.client()
    cluster.leader = None
    for question in (client.list_members(timeout=0.2), client.transfer_leadership(timeout=0.2)):
        with pytest.raises(UnavailableError):
            await question


async def test_a_node_is_found_by_its_name_when_it_is_a_member_under_a_longer_one(cluster: Cluster) -> None:
    client = cluster.client()
    cluster.nodes[1].name = "n2~0a1b2c3d"
    assert await client.list_snapshots("n2") == []
    assert await client.list_snapshots("n2~0a1b2c3d") == []
    with pytest.raises(RequestError, match="no node is named 'n2~ffffffff'"):
        await client.list_snapshots("n2~ffffffff")
