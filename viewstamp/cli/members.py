"""``viewstamp members``: who belongs to a cluster, and how that changes while it runs."""

from __future__ import annotations

import asyncio
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
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, cluster_flag, program
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json, print_table, say

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

app = typer.Typer(cls=CommandGroup, help="See and change the members of a running cluster.", no_args_is_help=True)

AddressArgument = Annotated[
    str | None,
    typer.Argument(metavar="[HOST:PORT]", help="Where it listens. [default: a local node, which is made and started]"),
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Until it votes; else it goes on by itself.")]


@app.command("list")
def list_members(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = LEADER_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the members, what each is, and how far behind the leader. Exit 3 where nobody leads."""
    target = find_cluster(directory, cluster)

    async def look(client: Client) -> tuple[Members, Mapping[str, Any]]:
        members = await client.list_members(timeout=timeout)
        return members, summary(await client.status(timeout=timeout), target.names)

    members, told = target.ask(look)
    rows = member_rows(members, told)
    if output is Output.JSON:
        fields = {"leader": told["leader"], "generation": members.generation, "changing": members.is_changing}
        print_json({**fields, "members": rows})
        return
    print_table(
        ["node", "role", "address", "behind", "state"],
        [(row["node"], _role(row), row["address"], _behind(row), row["state"]) for row in rows],
    )
    from viewstamp.consensus.standing import majority

    voters = len(members.voters)
    spare = voters - majority(voters)
    print(
        f"{voters} voter{'s' if voters > 1 else ''}: {spare} may be down"
        + (f", as with {voters - 1}" if voters > 1 and not voters % 2 else "")
    )
    if members.outgoing:
        print("a change is half-way: it needs a majority of the voters before it and of those after it")


@app.command()
def add(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Its name. [default: the next one of a local cluster]")
    ] = None,
    address: AddressArgument = None,
    learner: Annotated[bool, typer.Option("--learner", help="It follows, and never gets a vote.")] = False,
    wait: WaitOption = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a member. It begins as a learner, and votes by itself when it has caught up. Again is harmless."""
    change = _Change(directory, cluster, timeout, output)
    run_async(change.add(node, address, voter=not learner, replaces="", wait=wait))


@app.command()
def replace(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The voter that goes.")],
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Who comes. [default: the next one of a local cluster]")
    ] = None,
    address: AddressArgument = None,
    wait: WaitOption = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put a new member in the place of a voter, in one step, when the new one has caught up. Again is harmless."""
    change = _Change(directory, cluster, timeout, output)
    run_async(change.add(node, address, voter=True, replaces=old, wait=wait))


@app.command()
def remove(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The member that goes.")],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 10.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a member. A local one is stopped, and `cluster start` leaves it alone; its data stays."""
    run_async(_Change(directory, cluster, timeout, output).remove(node))


class _Change:
    """One change of the members, from the command line: of any cluster, and of its processes where they are local."""

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
        """Nodes that this command has made."""

    async def add(self, name: str | None, address: str | None, *, voter: bool, replaces: str, wait: bool) -> None:
        """Add a member, having made and started it where it is local and no address is given."""
        async with self._target.connect() as client:
            before = await client.list_members(timeout=self._first)
            old = resolve(before, replaces) if replaces else ""
            made: LocalNode | None = None
            if address is None and (known := self._local_voter(name, before)) is not None:
                name, address = known.id, known.address
                self._check_local_voter(known, before)
                made = known if before.voters[name] != address else None  # It was moved, and starts after the change.
            elif address is None:
                made = self._make(name, before)
                name, address = made.id, made.address
            assert name is not None, "an address stands behind a name"
            if voter and not replaces and before.voters.get(name) == address:
                self._tell(f"{name} is a voter already", node=name, address=address, role="voter")
                return
            is_moved = name in before.voters
            after = await self._begin(client, made, name, address, voter=voter, replaces=old, is_moved=is_moved)
            if made is not None and is_moved:
                await self._restart(made)
            if not voter or name not in after.joining:
                role = "voter" if name in after.voters else "learner"
                self._tell(f"{name} is a {role}", node=name, address=address, role=role)
                return
            place = f" in the place of {old}" if old else ""
            if not wait:
                self._tell(
                    f"{name} is a learner, and votes{place} when it has caught up: "
                    f"{program()} members list{self._where}",
                    node=name,
                    address=address,
                    role="joining",
                )
                return
            await self._wait_votes(client, name, made)
        self._tell(f"{name} votes{place}", node=name, address=address, role="voter")
        if old:
            await self._retire(name_of(old))

    def _local_voter(self, name: str | None, members: Members) -> LocalNode | None:
        """Return the local node of this name, if it is a voter."""
        if self._local is None or name is None or name not in self._local.nodes or name not in members.voters:
            return None
        return self._local.node(name)

    def _check_local_voter(self, node: LocalNode, members: Members) -> None:
        """Check that a voter which is to be added has only to be told that, or has moved.

        Raises:
          RequestError: it does not run, and adding it would start it without a word.
        """
        if members.voters[node.id] == node.address and node.pid() is None:
            raise RequestError(
                f"{node.id} is a voter already, and does not run",
                remedy=f"start it: {program()} cluster restart {node.id}{self._where}",
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
        """Ask for the change; return when it is committed.

        A node that was made for it is deleted again where it is certain that it did not become a member.
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
        """Delete a node that was made, or say that it is there, where it may have become a member."""
        if is_certain and self._local is not None:
            await node.kill()
            self._local.discard_node(node)
            say(f"{node.id} is no member, and was deleted again")
            return
        say(
            f"{node.id} runs, and may be a member or not: `{program()} members add {node.id}{self._where}` goes on, "
            f"`{program()} members remove {node.id}{self._where}` undoes it"
        )

    async def remove(self, name: str) -> None:
        """Remove a member, and stop it where it is local; one that is none any more is stopped all the same."""
        async with self._target.connect() as client:
            members = await client.list_members(timeout=self._first)
            is_local = self._local is not None and name in self._local.nodes
            if is_local and NodeId(name) not in map(name_of, members.addresses):
                self._tell(f"{name} is no member", node=name, removed=False)
            else:
                member = resolve(members, name)
                await client.remove_member(member, timeout=self._left)
                self._tell(f"{member} is no member any more", node=member, removed=True)
        await self._retire(name)

    @property
    def _first(self) -> float:
        """How long to look for a leader: who has none need not wait as long as for a newcomer to catch up."""
        return min(self._timeout, LEADER_SECONDS)

    @property
    def _left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _tell(self, sentence: str, **fields: object) -> None:
        if self._output is Output.JSON:
            print_json(fields)
        else:
            print(sentence)

    def _make(self, name: str | None, members: Members) -> LocalNode:
        """Return a local node that runs: the one of that name, else a new one."""
        if self._local is None:
            raise ConfigError(
                "where the new member listens is not said, and the cluster is not a local one",
                remedy="start it where it shall run (viewstamp node run --config FILE, with the members as they are in "
                "[cluster] members and itself in learners), and say where: members add NODE HOST:PORT",
            )
        if name in self._local.nodes:
            node = self._local.node(str(name))
        else:
            node = self._local.add_node(name or "", {NodeId(voter): at for voter, at in members.voters.items()})
            self._made.add(node.id)
            if self._output is Output.TABLE:
                say(f"made {node.file}")
        self._start(node)
        return node

    async def _restart(self, node: LocalNode) -> None:
        """Start a voter where it is now that the membership has it there; what runs listens where it was."""
        await node.stop(self._left)
        self._start(node)

    def _start(self, node: LocalNode) -> None:
        """Start a local node unless it runs, and expect it to answer."""
        assert self._local is not None, "a local node belongs to a local cluster"
        if self._output is Output.TABLE and node.pid() is None:
            say(f"starting {node.id}")
        self._local.spawn(node)
        if self._target.expected is not None:
            self._target.expected[node.address] = node.identity

    async def _wait_answers(self, client: Client, node: LocalNode) -> None:
        """Wait until a node that was started says something."""
        from viewstamp.client.options import ClientOptions

        target = ClusterTarget([node.address], self._target.cluster_id, expected={node.address: node.identity})
        async with target.connect(options=ClientOptions(connect_timeout=1, silence=1)) as newcomer:
            while not (await newcomer.status())[0]["reachable"]:
                self._check_lives(node)
                self._check_time(f"{node.id} does not answer at {node.address}")
                await asyncio.sleep(LOOK_SECONDS)

    async def _wait_votes(self, client: Client, name: str, node: LocalNode | None) -> None:
        """Wait until a learner that is joining is a voter and nothing is half-way, and say how far it has come."""
        from viewstamp.terminal.show import Show

        show = Show(self._output)
        try:
            while True:
                try:
                    members = await client.list_members(timeout=min(2.0, self._left))
                except UnavailableError as error:  # As while the leader moves.
                    show.phase(str(error))
                else:
                    if name in members.voters and not members.outgoing:
                        return
                    if name not in members.addresses:
                        raise RequestError(f"{name} was removed meanwhile", remedy="add it again")
                    self._show_progress(show, name, members, summary(await client.status(), self._target.names))
                if node is not None:
                    self._check_lives(node)
                self._check_time(f"{name} does not vote yet; it goes on by itself")
                await asyncio.sleep(LOOK_SECONDS)
        except asyncio.CancelledError:
            say(
                f"{name} is a learner, and goes on to become a voter: see `{program()} members list{self._where}`; "
                f"`{program()} members remove {name}{self._where}` undoes it"
            )
            raise
        finally:
            show.close()

    def _show_progress(self, show: Show, name: str, members: Members, told: Mapping[str, Any]) -> None:
        row = next(row for row in member_rows(members, told) if row["node"] == name)
        done, total = row["held"] or 0, row["total"] or 0
        show.count(
            done, total, f"{name} is {row['role']}, {_behind(row) or 'nobody knows how far'} behind   {row['state']}"
        )

    def _check_lives(self, node: LocalNode) -> None:
        if node.pid() is None:
            raise node.last_words()

    def _check_time(self, what: str) -> None:
        if time.monotonic() > self._deadline:
            raise UnavailableError(
                f"{what} (waited {self._timeout:g} s)",
                remedy=f"see {program()} doctor{self._where}, or {program()} members list{self._where}",
            )

    async def _retire(self, name: str) -> None:
        """Stop a local node that is no member any more, and set its settings aside; say how, where it is not local."""
        if self._local is None or name not in self._local.nodes:
            if self._output is Output.TABLE:
                print(f"stop {name} where it runs; it has no part in anything any more")
            return
        node = self._local.node(name)
        await node.stop(self._left)
        kept = self._local.forget_node(name)
        if self._output is Output.TABLE:
            print(f"stopped {name}; its settings are {kept} now, its data stays in {node.directory}")


def resolve(members: Members, name: str) -> str:
    """Return the member that is meant by a name: a node that has lost its disk is a member under a longer one.

    Raises:
      RequestError: there is none, or several.
    """
    found = [name] if name in members.addresses else [one for one in members.addresses if name_of(one) == name]
    if len(found) != 1:
        what = "more than one member" if found else "no member"
        raise RequestError(
            f"{name} is {what}: {', '.join(found or members.addresses)}",
            remedy="name one of these",
        )
    return found[0]


def member_rows(members: Members, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of ``members list``, computed from the statuses of the nodes.

    ``held`` of ``total`` is what the member has: records of the log, or bytes of a snapshot that it fetches
    (``unit``); None = it does not say.
    """
    nodes = {member_id(node): node for node in told["nodes"]}
    leader = next((node for node in told["nodes"] if node["reachable"] and node["id"] == told["leader"]), None)
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
            row["state"] = "silent until repaired" if node.get("silent_until") else node["lifecycle"]
            fetching = node.get("fetching_snapshot")
            if node.get("repair"):
                row["state"] = "repairing"
            if fetching:
                row |= {"held": fetching["bytes"], "total": fetching["size"], "unit": "bytes"}
            elif leader is not None and node.get("durable_index") is not None:
                row |= {"held": node["durable_index"], "total": max(leader["last_index"], node["durable_index"])}
        rows.append(row)
    return rows


def _role(row: Mapping[str, Any]) -> str:
    return f"{row['role']} (for {row['replaces']})" if row["replaces"] else str(row["role"])


def _behind(row: Mapping[str, Any]) -> str | None:
    if row["held"] is None:
        return None
    behind = row["total"] - row["held"]
    if row["unit"] == "bytes":
        return f"{behind / MIB:,.1f} of {row['total'] / MIB:,.1f} MiB"
    return f"{behind:,} records" if behind else "0"
