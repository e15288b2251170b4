"""``viewstamp members``: lists the members of a running cluster, and adds, replaces and removes them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.doctor.status import member_id, summary
from viewstamp.errors import ConfigError, RequestError, UnavailableError, ViewstampError
from viewstamp.ids import NodeId, name_of
from viewstamp.local.find import find_cluster, is_local
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, cluster_flag, program
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Members
    from viewstamp.local.cluster import LocalCluster
    from viewstamp.local.node import LocalNode
    from viewstamp.terminal.show import Show

__all__ = ["app", "member_rows", "resolve"]

MIB: Final = 1024 * 1024
LOOK_SECONDS: Final = 0.2
LEADER_SECONDS: Final = 5.0

app = typer.Typer(cls=CommandGroup, help="List and change the members of a running cluster.", no_args_is_help=True)

NodeArgument = Annotated[
    str | None, typer.Argument(metavar="NODE", help="Name of the new member. [default: the next free nK]")
]
AddressArgument = Annotated[
    str | None,
    typer.Argument(metavar="HOST:PORT", help="Its address. [default: create and start a local node]"),
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Return only when the new member is a voter.")]


@app.command("list")
def list_members(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = LEADER_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the members, their roles, and how far each is behind the leader. Exits with 3 if there is no leader."""
    target = find_cluster(directory, cluster)

    async def look(client: Client) -> tuple[Members, Mapping[str, Any]]:
        members = await client.list_members(timeout=timeout)
        return members, summary(await client.status(timeout=timeout), target.names)

    members, state = target.ask(look)
    rows = member_rows(members, state)
    if output is Output.JSON:
        fields = {"leader": state["leader"], "generation": members.generation, "changing": members.is_changing}
        print_json({**fields, "members": rows})
        return
    print_table(
        ["node", "role", "address", "behind", "state"],
        [(row["node"], _role(row), row["address"], _behind(row), row["state"]) for row in rows],
    )
    print(_tolerance(members))
    if members.outgoing:
        print("A change is in progress: until it ends, both the old and the new voters need a majority.")


@app.command()
def add(
    node: NodeArgument = None,
    address: AddressArgument = None,
    learner: Annotated[bool, typer.Option("--learner", help="Add a learner, which never becomes a voter.")] = False,
    wait: WaitOption = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a member. It joins as a learner and becomes a voter when it has caught up. Safe to repeat."""
    change = _Change(directory, cluster, timeout, output)
    run_async(change.add(node, address, voter=not learner, replaces="", wait=wait))


@app.command()
def replace(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The voter to replace.")],
    node: NodeArgument = None,
    address: AddressArgument = None,
    wait: WaitOption = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replace a voter by a new member, in one step, when the new member has caught up. Safe to repeat."""
    change = _Change(directory, cluster, timeout, output)
    run_async(change.add(node, address, voter=True, replaces=old, wait=wait))


@app.command()
def remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The member to remove.")],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 10.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a member. A local one is stopped, and `cluster start` does not start it again; its data stays."""
    run_async(_Change(directory, cluster, timeout, output).remove(node))


class _Change:
    """One change of the membership. For a local cluster it also creates, starts and stops the node's process."""

    def __init__(self, directory: Path | None, cluster: str | None, timeout: float, output: Output) -> None:
        from viewstamp.local.cluster import LocalCluster

        self._target = find_cluster(directory, cluster)
        self._local: LocalCluster | None = None
        if is_local(directory, cluster):
            self._local = LocalCluster.open(directory or DEFAULT_DIRECTORY)
        self._where = cluster_flag(directory, cluster)
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._output = output
        self._made: set[str] = set()
        """Nodes whose settings this command has created."""

    async def add(self, name: str | None, address: str | None, *, voter: bool, replaces: str, wait: bool) -> None:
        """Add a member. Without an address, create and start it first as a local node."""
        async with self._target.connect() as client:
            before = await client.list_members(timeout=self._first)
            old = resolve(before, replaces) if replaces else ""
            made: LocalNode | None = None
            if address is None and (known := self._local_voter(name, before)) is not None:
                name, address = known.id, known.address
                self._check_local_voter(known, before)
                made = known if before.voters[name] != address else None  # Its settings have a new address.
            elif address is None:
                made = self._make(name, before)
                name, address = made.id, made.address
            assert name is not None, "an address stands behind a name"
            if voter and not replaces and before.voters.get(name) == address:
                self._print(f"{name} is already a voter", node=name, address=address, role="voter")
                return
            is_moved = name in before.voters
            after = await self._begin(client, made, name, address, voter=voter, replaces=old, is_moved=is_moved)
            if made is not None and is_moved:
                await self._restart(made)
            if not voter or name not in after.joining:
                role = "voter" if name in after.voters else "learner"
                self._print(f"{name} is a {role}", node=name, address=address, role=role)
                return
            place = f" in place of {old}" if old else ""
            if not wait:
                self._print(
                    f"{name} is a learner, and becomes a voter{place} when it has caught up; to see its progress: "
                    f"`{program()} members list{self._where}`",
                    node=name,
                    address=address,
                    role="joining",
                )
                return
            await self._wait_votes(client, name, made)
        self._print(f"{name} is now a voter{place}", node=name, address=address, role="voter")
        if old:
            await self._retire(name_of(old))

    def _local_voter(self, name: str | None, members: Members) -> LocalNode | None:
        """Return the local node of this name if it is a voter, else None."""
        if self._local is None or name is None or name not in self._local.nodes or name not in members.voters:
            return None
        return self._local.node(name)

    def _check_local_voter(self, node: LocalNode, members: Members) -> None:
        """Check that an existing voter runs, or that its settings have a new address.

        Raises:
          RequestError: it is stopped; to add it would start it, which was not asked for.
        """
        if members.voters[node.id] == node.address and node.pid() is None:
            raise RequestError(
                f"{node.id} is already a voter, and is not running",
                remedy=f"to start it: `{program()} cluster restart {node.id}{self._where}`",
            )

    async def _begin(
        self,
        client: Client,
        made: LocalNode | None,
        name: str,
        address: str,
        *,
        voter: bool,
        replaces: str,
        is_moved: bool,
    ) -> Members:
        """Send the change; return when it is committed.

        If it is certain that the node did not become a member, a node that was created for it is deleted again.
        """
        is_asked = False
        try:
            if made is not None and not is_moved:
                await self._wait_answers(client, made)
            is_asked = True
            return await client.add_member(name, address, voter=voter, replaces=replaces, timeout=self._left)
        except (asyncio.CancelledError, ViewstampError) as error:
            if name in self._made and made is not None:
                is_certain = not is_asked or isinstance(error, UnavailableError | RequestError)
                await self._leave(made, is_certain=is_certain)
            raise

    async def _leave(self, node: LocalNode, *, is_certain: bool) -> None:
        """Delete a created node; or keep it and print how to continue, because it may have become a member."""
        if is_certain and self._local is not None:
            await node.kill()
            self._local.discard_node(node)
            say(f"{node.id} is no member, and was deleted again")
            return
        say(
            f"{node.id} runs, and may or may not be a member: `{program()} members add {node.id}{self._where}` "
            f"continues, `{program()} members remove {node.id}{self._where}` undoes the change"
        )

    async def remove(self, name: str) -> None:
        """Remove a member, and stop it if it is local. A local node that is no member any more is stopped too."""
        async with self._target.connect() as client:
            members = await client.list_members(timeout=self._first)
            is_local = self._local is not None and name in self._local.nodes
            if is_local and NodeId(name) not in map(name_of, members.addresses):
                self._print(f"{name} is no member", node=name, removed=False)
            else:
                member = resolve(members, name)
                after = await client.remove_member(member, timeout=self._left)
                fields = {"voters": len(after.voters), "tolerated": _spare(after)}
                self._print(f"{member} is no member any more", node=member, removed=True, **fields)
                if self._output is Output.TABLE and member in members.voters:
                    warning = "" if _spare(after) else "WARNING: no further failure is tolerated. "
                    print(fitted(warning + _tolerance(after), sys.stdout))
        await self._retire(name)

    @property
    def _first(self) -> float:
        """Seconds to look for a leader: less than the whole timeout, most of which is for the new member's catch-up."""
        return min(self._timeout, LEADER_SECONDS)

    @property
    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _print(self, sentence: str, **fields: object) -> None:
        if self._output is Output.JSON:
            print_json(fields)
        else:
            print(sentence)

    def _make(self, name: str | None, members: Members) -> LocalNode:
        """Return a running local node: the existing one of that name, else a new one."""
        if self._local is None:
            raise ConfigError(
                "the address of the new member is missing, and the cluster is not a local one",
                remedy="start the node on its machine (viewstamp node run --config FILE, with the voters in [cluster] "
                "members and the node itself in learners), then run: members add NODE HOST:PORT",
            )
        if name in self._local.nodes:
            node = self._local.node(str(name))
        else:
            node = self._local.add_node(name or "", {NodeId(voter): at for voter, at in members.voters.items()})
            self._made.add(node.id)
            if self._output is Output.TABLE:
                say(f"created {_shown(node.file)}")
        self._start(node)
        return node

    async def _restart(self, node: LocalNode) -> None:
        """Restart a voter at the address that the membership now has; the old process listens at the old one."""
        await node.stop(self._left)
        self._start(node)

    def _start(self, node: LocalNode) -> None:
        """Start a local node unless it runs, and let the client accept its answers."""
        assert self._local is not None, "a local node belongs to a local cluster"
        if self._output is Output.TABLE and node.pid() is None:
            say(f"starting {node.id}")
        self._local.spawn(node)
        if self._target.expected is not None:
            self._target.expected[node.address] = node.identity

    async def _wait_answers(self, client: Client, node: LocalNode) -> None:
        """Wait until the status of a started node can be read."""
        from viewstamp.client.options import ClientOptions

        target = self._target.at(node.address, node.identity)
        async with target.connect(options=ClientOptions(connect_timeout=1, silence=1)) as newcomer:
            while not (await newcomer.status())[0]["reachable"]:
                self._check_lives(node)
                self._check_time(f"{node.id} did not answer at {node.address}")
                await asyncio.sleep(LOOK_SECONDS)

    async def _wait_votes(self, client: Client, name: str, node: LocalNode | None) -> None:
        """Wait until a joining learner is a voter and the change is complete; show its progress."""
        from viewstamp.terminal.show import Show

        show = Show(self._output)
        try:
            while True:
                try:
                    members = await client.list_members(timeout=min(2.0, self._left))
                except UnavailableError as error:  # For example while leadership moves.
                    show.phase(str(error))
                else:
                    if name in members.voters and not members.outgoing:
                        return
                    if name not in members.addresses:
                        raise RequestError(f"{name} was removed before it became a voter", remedy="add it again")
                    self._show_progress(show, name, members, summary(await client.status(), self._target.names))
                if node is not None:
                    self._check_lives(node)
                self._check_time(f"{name} is not yet a voter; the change continues without this command")
                await asyncio.sleep(LOOK_SECONDS)
        except asyncio.CancelledError:
            say(
                f"{name} is a learner and becomes a voter when it has caught up: see "
                f"`{program()} members list{self._where}`; to undo: `{program()} members remove {name}{self._where}`"
            )
            raise
        finally:
            show.close()

    def _show_progress(self, show: Show, name: str, members: Members, state: Mapping[str, Any]) -> None:
        row = next(row for row in member_rows(members, state) if row["node"] == name)
        done, total = row["held"] or 0, row["total"] or 0
        behind = _behind(row)
        lag = f"{behind} behind" if behind else "progress unknown"
        show.count(done, total, f"{name}: {row['role']}, {lag}, {row['state']}")

    def _check_lives(self, node: LocalNode) -> None:
        if node.pid() is None:
            raise node.last_words()

    def _check_time(self, problem: str) -> None:
        if time.monotonic() > self._deadline:
            raise UnavailableError(
                f"{problem} (waited {self._timeout:g} s)",
                remedy=f"run `{program()} doctor{self._where}`, or `{program()} members list{self._where}`",
            )

    async def _retire(self, name: str) -> None:
        """Stop a removed local node, and set its settings aside. For another cluster, print that it can be stopped."""
        if self._local is None or name not in self._local.nodes:
            if self._output is Output.TABLE:
                print(f"You can stop {name} now: the cluster does not need it any more.")
            return
        node = self._local.node(name)
        await node.stop(self._left)
        kept = self._local.forget_node(name)
        if self._output is Output.TABLE:
            print(f"stopped {name}; its settings are now in {_shown(kept)}, its data stays in {_shown(node.directory)}")


def _shown(path: str) -> str:
    return os.path.relpath(path)


def resolve(members: Members, name: str) -> str:
    """Return the member that a name means. A node that lost its disk is a member under a longer name than its own.

    Raises:
      RequestError: no member has this name, or several have.
    """
    found = [name] if name in members.addresses else [one for one in members.addresses if name_of(one) == name]
    if len(found) != 1:
        problem = "names several members" if found else "is no member; the members are"
        raise RequestError(f"{name} {problem}: {', '.join(found or members.addresses)}", remedy="name one of these")
    return found[0]


def member_rows(members: Members, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of ``members list``, computed from the statuses of the nodes.

    ``held`` of ``total`` is how much the member has: records of the log, or bytes of a snapshot that it fetches
    (``unit``); None = unknown.
    """
    nodes = {member_id(node): node for node in state["nodes"]}
    leader = next((node for node in state["nodes"] if node["reachable"] and node["id"] == state["leader"]), None)
    rows = []
    for name, address in sorted(members.addresses.items(), key=lambda item: (len(item[0]), item[0])):
        node = nodes.get(name) or {"reachable": False}
        row: dict[str, Any] = {
            "node": name,
            "role": "learner",
            "replaces": members.joining.get(name) or None,
            "address": address,
            "held": None,
            "total": None,
            "unit": "records",
            "state": "unreachable",
        }
        if name in members.joining:
            row["role"] = "joining"
        elif name in members.voters or name in members.outgoing:
            row["role"] = "voter" if name in members.voters else "leaving"
            row["role"] = "leader" if leader is not None and member_id(leader) == name else row["role"]
        if node["reachable"]:
            row["state"] = "recovering" if node.get("silent_until") else node["lifecycle"]
            fetching = node.get("fetching_snapshot")
            if node.get("repair"):
                row["state"] = "repairing"
            if fetching:
                row |= {"held": fetching["bytes"], "total": fetching["size"], "unit": "bytes"}
            elif leader is not None and node.get("durable_index") is not None:
                row |= {"held": node["durable_index"], "total": max(leader["last_index"], node["durable_index"])}
        rows.append(row)
    return rows


def _spare(members: Members) -> int:
    """Return how many voters may be down while the cluster works."""
    from viewstamp.consensus.standing import majority

    return len(members.voters) - majority(len(members.voters))


def _tolerance(members: Members) -> str:
    voters = len(members.voters)
    return f"{voters} voter{'s' if voters > 1 else ''}: the cluster works with {_spare(members)} of them down" + (
        f", as with {voters - 1} voter{'s' if voters > 2 else ''}" if voters > 1 and not voters % 2 else ""
    )


def _role(row: Mapping[str, Any]) -> str:
    return f"{row['role']} (for {row['replaces']})" if row["replaces"] else str(row["role"])


def _behind(row: Mapping[str, Any]) -> str | None:
    if row["held"] is None:
        return None
    behind = row["total"] - row["held"]
    if row["unit"] == "bytes":
        return f"{behind / MIB:,.1f} of {row['total'] / MIB:,.1f} MiB"
    return f"{behind:,} records" if behind else "0"
