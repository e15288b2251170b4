"""Several groups on the nodes of a cluster: connections that belong to one group, directories, and failures."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.node.caller import call
from tests.node.group import PATIENCE_SECONDS, wait_for
from tests.node.test_fail_stop import Broken
from viewstamp.consensus.membership import RemoveMember
from viewstamp.consensus.roles import Lifecycle
from viewstamp.errors import ConfigError, StorageError, UnavailableError
from viewstamp.ids import GroupId, NodeId
from viewstamp.node import Node
from viewstamp.node.changes import ChangeMembers
from viewstamp.node.inbox import Proposal
from viewstamp.node.state_machine import Result, TopicsQuery
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import GROUPS_VERSION, PROTOCOL_VERSION, FrameKind

SEVEN = GroupId(7)


class Hosting(Broken):
    """Three nodes that also host group 7; tests can make the disk of n1 fail."""

    async def host(self, *names: str) -> None:
        for name in names or self.members:
            node = self.nodes[NodeId(name)]
            options = node.options.of_group(SEVEN, self.members, learners={}, leader_hint="n1")
            await node.host_group(options, self.machine(NodeId(name)))

    def leader_of_seven(self) -> Node | None:
        return next((node for node in self.nodes.values() if leads_seven(node)), None)

    async def create(self, name: str) -> None:
        """Create a topic in group 7, however often the leader changes meanwhile."""
        while True:
            await wait_for(lambda: self.leader_of_seven() is not None, self.journal.tail)
            leader = self.leader_of_seven()
            answered: asyncio.Future[Result | Exception] = asyncio.get_running_loop().create_future()
            if leader is not None:
                leader.groups[SEVEN].propose(topic_batch(name), answered.set_result)
                if not isinstance(await asyncio.wait_for(answered, PATIENCE_SECONDS), Exception):
                    return

    async def has_topics(self, *names: str) -> None:
        """Wait until every node that hosts group 7 has exactly these topics in its state."""

        def is_level() -> bool:
            hosted = [node.groups[SEVEN] for node in self.nodes.values() if SEVEN in node.groups]
            return all({topic["name"] for topic in topics_of(each)} == set(names) for each in hosted)

        await wait_for(is_level, self.journal.tail)


def topic_batch(name: str) -> Batch:
    record = msgpack.packb({"name": name, "retain_bytes": 0, "retain_seconds": 0.0})
    return build_batch([record], kind=Kind.CREATE_TOPIC)


def leads_seven(node: Node) -> bool:
    hosted = node.groups.get(SEVEN)
    return hosted is not None and hosted.replica is not None and hosted.replica.is_leading


def topics_of(group: Any) -> Any:
    return group.machine.query(TopicsQuery())


async def test_a_second_group_has_its_own_log_and_survives_a_restart(tmp_path: Path) -> None:
    async with Hosting(tmp_path) as group:
        await group.run()
        await group.host()
        await group.create("seven")
        await group.client().create_topic("zero")
        await group.has_topics("seven")
        hosted = [each for status in await group.client().status() for each in status["hosted"]]
        assert [(each["group"], each["failure"]) for each in hosted] == [(SEVEN, "")] * 3
        await group.stop("n3")
        await group.create("later")
        await group.run("n3")
        await group.host("n3")
        await group.has_topics("seven", "later")


async def test_a_failed_disk_of_one_group_leaves_the_others_running(tmp_path: Path) -> None:
    async with Hosting(tmp_path) as group:
        await group.run()
        await group.host()
        await group.create("before")
        node = group.nodes[NodeId("n1")]
        group.refuses = "write", "groups/7/", StorageError
        await group.create("during")
        assert isinstance(await asyncio.wait_for(node.groups[SEVEN].failed, PATIENCE_SECONDS), StorageError)
        assert not node.failed.done()
        await group.client().create_topic("zero")
        with pytest.raises(UnavailableError, match="group 7 has failed on n1"):
            node.group_of(SEVEN)
        failure = node.groups[SEVEN].failure
        assert failure == str(node.groups[SEVEN].failed.result()), "a message and no repr"
        assert node.groups[SEVEN].status["failure"] == failure
        group.refuses = None
        await group.stop("n1")
        await group.run("n1")
        await group.host("n1")
        await group.has_topics("before", "during")


async def test_every_request_in_the_turn_in_which_a_group_fails_is_answered_with_the_cause(tmp_path: Path) -> None:
    """Nothing may be written for them, and each answer gives bytes of the shared budget back."""
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await group.create("seven")
        hosted = group.nodes[NodeId("n1")].groups[SEVEN]
        answers: list[object] = []
        assert hosted.parts is not None
        hosted.propose(topic_batch("before"), answers.append)
        hosted.parts.ref.put(Proposal(None, answers.append))  # type: ignore[arg-type]
        hosted.propose(topic_batch("after"), answers.append)
        hosted.parts.ref.put(ChangeMembers(RemoveMember(NodeId("n9")), answers.append))
        await asyncio.wait_for(hosted.failed, PATIENCE_SECONDS)
        names = sorted(type(answer).__name__ for answer in answers)
        assert names == ["ClosedError", "ClosedError", "ClosedError", "OutcomeUnknownError"]
        assert all("n1 has failed: AttributeError(" in str(answer) for answer in answers)


async def test_a_connection_belongs_to_the_group_of_its_hello(tmp_path: Path) -> None:
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await group.create("seven")
        for fields, names in (({}, []), ({"group": SEVEN, "version": GROUPS_VERSION}, ["seven"])):
            async with call(group, "n1", greet=False) as caller:
                welcome = await caller.hello(**fields)
                assert (welcome.kind, welcome.body["version"]) == (FrameKind.WELCOME, PROTOCOL_VERSION)
                answer = await caller.ask(FrameKind.LIST_TOPICS, stale=True, max_staleness=None)
                assert [topic["name"] for topic in answer.body["topics"]] == names


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": 8, "version": GROUPS_VERSION}, "UnavailableError"),
        ({"group": 7, "version": PROTOCOL_VERSION}, "PeerError"),
        ({"version": GROUPS_VERSION}, "PeerError"),
        ({"group": -1}, "FrameError"),
        ({"group": "7"}, "FrameError"),
    ],
)
async def test_a_hello_for_a_group_is_refused_unless_it_is_hosted_and_the_version_knows_groups(
    tmp_path: Path, fields: dict[str, object], error: str
) -> None:
    async with Hosting(tmp_path, 1) as group:
        await group.start()
        async with call(group, "n1", greet=False) as caller:
            refused = await caller.hello(**fields)
            assert (refused.kind, refused.body["error"]) == (FrameKind.REFUSED, error)


async def test_the_directory_of_one_group_is_not_taken_for_another(tmp_path: Path) -> None:
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await group.stop("n1")
        directory = tmp_path / "n1" / "groups"
        (directory / "7").rename(directory / "8")
        await group.run("n1")
        node = group.nodes[NodeId("n1")]
        options = node.options.of_group(GroupId(8), group.members, learners={})
        with pytest.raises(ConfigError, match="holds group 7, and group 8 should be there"):
            await node.host_group(options, group.machine(NodeId("n1")))
        assert list(node.groups) == [0]
        assert node.lifecycle is Lifecycle.RUNNING


async def test_a_client_of_another_group_is_denied_while_access_control_is_on(tmp_path: Path) -> None:
    """Group 7 has no tokens in its state, so its own gate would permit every write."""
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await group.create("seven")
        async with call(group, "n1", greet=False) as caller:
            await caller.hello(group=SEVEN, version=GROUPS_VERSION)
            assert (await caller.ask(FrameKind.OPEN_SESSION)).kind == FrameKind.OK
            await group.client().create_token("ops", ["administer"])
            for kind, fields in ((FrameKind.OPEN_SESSION, {}), (FrameKind.LIST_TOPICS, {"stale": True})):
                assert (await caller.ask(kind, **fields)).body["error"] == "AccessDeniedError"


async def test_a_client_of_another_group_is_refused_while_group_0_starts_again(tmp_path: Path) -> None:
    """The state of group 0 is empty until its log has been replayed, so access control would look as if it were off."""
    async with Hosting(tmp_path, 1) as group:
        await group.run()
        await group.host()
        await group.create("seven")
        await group.client().create_token("ops", ["administer"])
        node = group.nodes[NodeId("n1")]
        replaying, goes_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def prepare() -> None:
            loop.call_soon_threadsafe(replaying.set)
            goes_on.wait(PATIENCE_SECONDS)

        async with call(group, "n1", greet=False) as caller:
            await caller.hello(group=SEVEN, version=GROUPS_VERSION)
            node.group.restart("a test", prepare)
            try:
                await asyncio.wait_for(replaying.wait(), PATIENCE_SECONDS)
                node.group._recovery._initial.restore()  # As the replay begins.
                assert not node.group.gate.access.is_on
                assert await caller.refusal(FrameKind.LIST_TOPICS, stale=True) == "UnavailableError"
                assert await caller.refusal(FrameKind.OPEN_SESSION) == "UnavailableError"
            finally:
                goes_on.set()
            while (refusal := await caller.refusal(FrameKind.LIST_TOPICS, stale=True)) == "UnavailableError":
                pass
            assert refusal == "AccessDeniedError"
