"""A client of a directory's nodes sends nothing to other nodes, even after a redirect or a reconnect."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from tests.client.cluster import Cluster
from viewstamp.client.identity import check_identity
from viewstamp.client.routing import ExpectedNode, Roster
from viewstamp.errors import UnavailableError, WrongNodeError
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.identity_proof import directory_proof, identity_proof

CHALLENGE = bytes(range(16))
N1 = ExpectedNode(node="n1", incarnation="aa", file="d/n1.toml")


def welcome(node: str = "n1", incarnation: str | None = "aa", at: str = "a:1") -> dict[str, object]:
    proof = None if incarnation is None else identity_proof(incarnation, CHALLENGE)
    return {"node": node, "proof": proof, "members": {node: at}}


def test_a_node_with_the_directorys_incarnation_is_accepted_even_under_the_id_of_a_new_disk() -> None:
    assert check_identity("a:1", N1, welcome(), CHALLENGE) is None
    assert check_identity("a:1", N1, welcome("n1~0a1b2c3d"), CHALLENGE) is None
    assert check_identity("a:1", ExpectedNode(node="n1"), welcome(incarnation="bb"), CHALLENGE) is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (welcome("n2"), "n2 answers at a:1, where d/n1.toml has n1"),
        (welcome(incarnation="bb"), "from another data directory than d/n1.toml names"),
        ({"node": "n1"}, "from another data directory"),
    ],
)
def test_another_node_and_another_incarnation_are_refused_by_name(found: dict[str, object], text: str) -> None:
    with pytest.raises(WrongNodeError, match=text) as caught:
        check_identity("a:1", N1, found, CHALLENGE)
    assert "--cluster a:1" in caught.value.remedy


def test_a_node_that_runs_on_a_copy_of_the_directory_is_refused() -> None:
    """An older release sends its directory's path too; a still older one proves nothing, and is accepted."""
    here = replace(N1, directory="d/n1", directory_id="8:1")

    def runs_on(directory_id: str, path: str = "", *, key: str = "aa") -> dict[str, object]:
        shown = {"directory": path} if path else {}
        return {**welcome(), **shown, "directory_proof": directory_proof(key, directory_id, path, CHALLENGE)}

    assert check_identity("a:1", here, runs_on("8:1"), CHALLENGE) is None

    assert check_identity("a:1", here, runs_on("8:1", "d/n1"), CHALLENGE) is None
    assert check_identity("a:1", here, runs_on("8:1", "moved/n1"), CHALLENGE) is None
    assert check_identity("a:1", here, welcome(), CHALLENGE) is None, "an older release"
    assert check_identity("a:1", N1, runs_on("8:2", "copy/n1"), CHALLENGE) is None, "a caller that has no directory"
    forged = {**runs_on("8:1", "d/n1"), "directory": "copy/n1"}
    for found in (runs_on("8:2"), runs_on("8:2", "copy/n1"), runs_on("8:1", "copy/n1", key="bb"), forged):
        with pytest.raises(WrongNodeError, match="does not run on d/n1, but on a copy or") as caught:
            check_identity("a:1", here, found, CHALLENGE)
        assert "--cluster a:1" in caught.value.remedy


def test_a_node_that_replays_its_log_or_contradicts_its_membership_is_asked_for_its_status_only() -> None:
    assert isinstance(check_identity("a:1", N1, welcome(incarnation=None), CHALLENGE), UnavailableError)
    doubt = check_identity("a:1", N1, welcome(at="a:9"), CHALLENGE)
    assert isinstance(doubt, WrongNodeError)
    assert "its membership has it at a:9" in doubt.message


def test_members_elsewhere_are_vouched_for_only_by_a_node_that_the_membership_has_where_it_was_met() -> None:
    roster = Roster({"a:1": N1})
    roster.vouch("n1", "a:1", {"n1": "a:9", "n4": "d:9"})  # A copy: the membership is the original's.
    assert not roster.admits("a:9")
    assert not roster.admits("d:9")
    with pytest.raises(WrongNodeError, match=r"the membership has n1 at a:9, but d/n1\.toml has it at a:1"):
        roster.at("a:9")
    with pytest.raises(WrongNodeError, match="n4 at d:9, but the directory has n1 at a:1"):
        roster.at("d:9")
    roster.vouch("n1", "a:1", {"n1": "a:1", "n4": "d:1"})
    assert roster.at("d:1") == ExpectedNode(node="n4")
    assert Roster(None).at("anywhere:1") is None


def expect(cluster: Cluster, **at: str) -> dict[str, ExpectedNode]:
    """Return the nodes as a directory would list them; ``at`` gives another address for one."""
    return {at.get(node.name, node.address): ExpectedNode(node=node.name, incarnation="aa") for node in cluster.nodes}


async def test_appends_and_changes_go_to_nodes_that_prove_their_identity(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.incarnation = "aa"
    client = cluster.client(1, 2, expected=expect(cluster))
    await client.create_topic("orders")
    assert (await client.append("orders", b"a")).position == 1


@pytest.mark.parametrize("known", [(1, 2), (1,)])
async def test_a_leader_at_an_address_that_the_directory_does_not_have_is_sent_nothing(
    cluster: Cluster, known: tuple[int, ...]
) -> None:
    for node in cluster.nodes:
        node.incarnation = "aa"
    cluster.told_members = {node.name: node.address for node in cluster.nodes}
    expected = expect(cluster, n1="127.0.0.1:1")
    client = cluster.client(*known, expected=expected)
    leader = cluster.nodes[0].address
    for call in (
        partial(client.create_topic, "t"),
        partial(client.trim_topic, "t", 1),
        partial(client.remove_member, "n2"),
        partial(client.transfer_leadership, "n2"),
        client.list_snapshots,
    ):
        with pytest.raises(WrongNodeError, match=leader):
            await asyncio.wait_for(call(), 5)
    assert not cluster.nodes[0].connections
    assert "n1" not in {node for node, _ in cluster.requests}


async def test_another_incarnation_is_sent_nothing_not_even_after_a_reconnect(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.incarnation = "aa"
    client = cluster.client(expected=expect(cluster))
    await client.create_topic("orders")
    for node in cluster.nodes:
        node.incarnation = "bb"
        for peer in list(node.connections):
            peer.connection.abort()
    cluster.requests.clear()
    with pytest.raises(WrongNodeError, match="from another data directory"):
        await client.create_topic("more", timeout=5)
    assert cluster.requests == []


async def test_a_node_that_replays_its_log_gets_only_status_requests_until_it_can_prove_its_identity(
    cluster: Cluster,
) -> None:
    for node in cluster.nodes:
        node.incarnation = None
    client = cluster.client(expected=expect(cluster))
    assert all(status["reachable"] for status in await client.status())
    for call in (client.list_topics, partial(client.create_snapshot, "n1")):
        with pytest.raises(UnavailableError):
            await call(timeout=0.05)
    task = asyncio.create_task(client.create_topic("orders", timeout=10))
    await asyncio.sleep(0.05)
    assert {kind for _, kind in cluster.requests} == {FrameKind.STATUS}
    for node in cluster.nodes:
        node.incarnation = "aa"
    assert (await task).name == "orders"
