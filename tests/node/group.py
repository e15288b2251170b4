"""A group of real nodes in this event loop, on real disks and sockets; tests can stop its members and cut them off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog
from structlog.typing import FilteringBoundLogger

from tests.node.hooked_disk import HookedDisk
from tests.node.switchboard import CLIENT, Switchboard
from tests.steady import clock_of_the_loop
from viewstamp.archive.run_process import RunProcess
from viewstamp.client import Client, ClientOptions
from viewstamp.consensus.state import RaftOptions
from viewstamp.host.clock import read_boot_id
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Disk, Host
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node import Node, NodeOptions
from viewstamp.node.archived import RunSource
from viewstamp.node.run_objects import RunStore
from viewstamp.streams import Streams
from viewstamp.wal.budget import WalOptions

FoundT = TypeVar("FoundT")

CLUSTER = ClusterId("c1")
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 20.0
"""Seconds for which a test waits for an event before it fails; a healthy group needs a small part of them."""

QUICK = RaftOptions(election_timeout_ticks=12, heartbeat_ticks=3)
"""Elections take less than a quarter of a second, because tests wait for them."""

CALM = RaftOptions(election_timeout_ticks=300, heartbeat_ticks=3)
"""Election timeouts of 3 to 6 s: for groups on another loop than the steady one that must keep their leader.

The first election of a group, and one after the end of a member, do not wait for a timeout.
"""

SMALL = WalOptions(segment_bytes=64 * 1024, reserve_bytes=0, margin_bytes=8 * 1024)
"""Small segments: quick to create and quick to fill."""


class Journal:
    """Keeps the log lines of all nodes of a test; they are added to the error when a test fails."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def logger(self) -> FilteringBoundLogger:
        return cast(
            "FilteringBoundLogger",
            structlog.wrap_logger(
                None, processors=[self._keep], wrapper_class=structlog.make_filtering_bound_logger(0)
            ),
        )

    def _keep(self, _: object, level: str, event: Any) -> Any:
        self.lines.append({"level": level, **event})
        raise structlog.DropEvent

    def of(self, event: str, **values: object) -> list[dict[str, Any]]:
        """Return the lines with this event and these values."""
        return [line for line in self.lines if line["event"] == event and values.items() <= line.items()]

    def tail(self, count: int = 40) -> str:
        return "\n".join(" ".join(f"{key}={value}" for key, value in line.items()) for line in self.lines[-count:])


def not_on_the_loop(call: str, path: str, caller: str) -> bool:
    """Check that no blocking call is made on the event loop, because a slow disk would then stop the whole node."""
    is_on_loop = asyncio._get_running_loop() is not None and not call.startswith("async ")
    assert not is_on_loop or call == "make_directory", f"{caller} calls {call} of {path} on the event loop"
    return True


class Group:
    """Members n1, n2, ... with one directory each; ``nodes`` holds the running ones.

    Use it with ``async with``: members that still run at the end are stopped.
    """

    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        disks: Callable[[NodeId], Disk] | None = None,
        seed: int = 1,
        run_stores: Callable[[NodeId], RunStore | None] = lambda _: None,
        **options: Any,
    ) -> None:
        """Describe a group; no member is started.

        Args:
          directory: the parent of the members' data directories, which are named after the members.
          size: number of members; the first one is the hinted leader.
          disks: returns each member's disk; None = real disks that fail when they are used on the event loop.
          seed: seeds elections and clients.
          run_stores: returns each member's store of archived records; None = it has none.
          options: node options that replace the tests' defaults, for every node.
        """
        self.directory = directory
        self.members = {NodeId(f"n{number}"): f"127.0.0.1:{number}" for number in range(1, size + 1)}
        self.board = Switchboard()
        self.journal = Journal()
        self.entropy = random.Random(seed)
        self.nodes: dict[NodeId, Node] = {}
        self._disks = disks or (lambda _: HookedDisk(RealDisk(), not_on_the_loop))
        self._run_stores = run_stores
        self._options = options
        self._clients: list[Client] = []

    async def __aenter__(self) -> Group:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception):
            states = "\n".join(f"{name}: {state}" for name, state in self.status().items())
            error.add_note(f"the members:\n{states}\ntheir last lines:\n{self.journal.tail()}")
        await self.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        for node in self.nodes.values():
            node.hands_over = False  # It would wait for members that stop at the same time.
        await self.stop(*self.nodes)

    # -- Members -------------------------------------------------------------------------------------------

    def options(self, name: str, **changes: Any) -> NodeOptions:
        """Return the options of one member."""
        node = NodeId(name)
        values: dict[str, Any] = {
            "node": node,
            "cluster": CLUSTER,
            "data_dir": str(self.directory / name),
            "listen": self.members.get(node, ""),
            "members": self.members,
            "leader_hint": "n1",
            "core": QUICK,
            "wal": SMALL,
            "request_seconds": 5.0,
        }
        return NodeOptions(**{**values, **self._options, **changes})

    def make(self, name: str, **changes: Any) -> Node:
        """Return a node that is not started."""
        entropy = random.Random(self.entropy.random())
        host = Host(
            clock_of_the_loop(), self._disks(NodeId(name)), self.board.network(name), entropy, boot_id=read_boot_id
        )
        return Node(
            self.options(name, **changes),
            host,
            self.machine(NodeId(name)),
            self.journal.logger(),
            machine_of=lambda _: self.machine(NodeId(name)),
            run_store=(store := self._run_stores(NodeId(name))),
            run_source=cast("RunSource | None", store.runs if isinstance(store, RunProcess) else store),
        )

    def machine(self, node: NodeId) -> Streams:
        """Return the empty state machine of one member."""
        return Streams()

    async def start(self, *names: str, **changes: Any) -> None:
        """Start the named members, or all of them; returns before they are RUNNING."""
        for name in names or self.members:
            node = self.make(name, **changes)
            await node.start()
            self.nodes[NodeId(name)] = node

    async def run(self, *names: str, **changes: Any) -> None:
        """Start members and wait until each is RUNNING."""
        await self.start(*names, **changes)
        for name in names or self.members:
            await self.nodes[NodeId(name)].wait_running(PATIENCE_SECONDS)

    async def stop(self, *names: str) -> None:
        """Stop members cleanly, at the same time."""
        await asyncio.gather(*(self.nodes.pop(NodeId(name)).stop() for name in list(names)))

    async def leader(self, *, not_: str = "") -> Node:
        """Wait for a member other than ``not_`` that leads and accepts appends; return it."""

        def find() -> Node | None:
            leading = [node for node in self.nodes.values() if node.replica is not None and node.replica.is_leading]
            leading = [node for node in leading if node.options.node != not_]
            return max(leading, key=term, default=None)

        return await wait_for(find, lambda: f"no leader\n{self.journal.tail()}")

    async def caught_up(self) -> None:
        """Wait until all running members have applied the same records."""

        def is_level() -> bool:
            ends = {
                (node.group.applied_index, node.replica.raft.core.log.end)
                for node in self.nodes.values()
                if node.replica
            }
            return len(ends) == 1 and all(end == applied + 1 for applied, end in ends)

        await wait_for(is_level, lambda: f"not level: {self.status()}\n{self.journal.tail()}")

    async def caught_up_with_leader(self, name: str) -> None:
        """Wait until a member follows a leader and has applied everything that the leader's log held at the call."""
        leader = await self.leader()
        assert leader.replica is not None
        end = leader.replica.raft.core.log.end

        def is_level() -> bool:
            replica = self.nodes[NodeId(name)].replica
            return replica is not None and replica.raft.core.leader is not None and replica.applier.applied_end >= end

        await wait_for(is_level, lambda: f"{name} is behind: {self.status()}\n{self.journal.tail()}")

    def status(self) -> Mapping[str, object]:
        return {name: node.status for name, node in self.nodes.items()}

    # -- Links -----------------------------------------------------------------------------------------------

    def isolate(self, name: str) -> None:
        """Cut a member off from all other members; clients can still reach it."""
        for other, address in self.members.items():
            if other != name:
                self.board.cut(name, address)
                self.board.cut(other, self.members[NodeId(name)])

    def heal(self) -> None:
        """Restore the links between all members."""
        self.board.heal()

    def client(self, *names: str, seed: int = 1, **options: Any) -> Client:
        """Return a client that is given the addresses of the named members, or of all; it is closed with the group."""
        values: dict[str, Any] = {"back_off_max": 0.1, **options}
        client = Client(
            [self.members[NodeId(name)] for name in names or self.members],
            network=self.board.network(CLIENT),
            entropy=random.Random(seed),
            cluster_id=CLUSTER,
            options=ClientOptions(**values),
        )
        self._clients.append(client)
        return client


def term(node: Node) -> int:
    """Return the current term of a member."""
    assert node.replica is not None, f"{node.options.node} is still starting"
    return node.replica.raft.core.term


async def wait_for(look: Callable[[], FoundT | None], complaint: Callable[[], str]) -> FoundT:
    """Poll until ``look`` finds something, because a group reports its own changes to no caller."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        found = look()
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, complaint()
        await asyncio.sleep(POLL_SECONDS)
