"""``viewstamp group``: places groups on nodes of a cluster, changes their members, cancels, removes and lists them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.confirmation import confirm
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, parse_ids, parse_names
from viewstamp.cli.status import STATUS_SECONDS
from viewstamp.errors import UnavailableError
from viewstamp.ids import NodeId, name_of
from viewstamp.local.find import find_cluster
from viewstamp.terminal.flags import cluster_flag, program
from viewstamp.terminal.number_words import number_words
from viewstamp.terminal.output import Output, print_json, print_table

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import GroupInfo

__all__ = ["app", "group_ids"]

LOOK_SECONDS: Final = 0.2
COLUMN_WIDTH: Final = 14

app = typer.Typer(
    cls=CommandGroup,
    help="Place groups beside group 0, which every cluster has. Topics with streams use them.",
    no_args_is_help=True,
)


async def group_ids(client: Client, groups: str | None, timeout: float) -> list[int]:
    """Return the ids of groups that are given by id or by name; [] = None. Raises typer.BadParameter."""
    given = parse_names(groups)
    if all(each.isascii() and each.isdecimal() for each in given):
        return parse_ids(groups)
    ids = {name: each.id for each in await client.list_groups(timeout=timeout) for name in each.streams}
    return parse_ids(",".join(str(ids.get(each, each)) for each in given))


@app.command()
def place(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]", help="A name that no other group has. [default: the next of group-1, group-2, ...]"
        ),
    ] = None,
    founders: Annotated[
        str | None, typer.Option("--founders", metavar="NODE,...", help="Members of the cluster. [default: all voters]")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return only when the group is established.")] = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Place a group on nodes. Safe to repeat. An established group cannot be removed yet.

    The same name again finds the same group. Without a name, a group that is not established yet is found first.
    """
    deadline = time.monotonic() + timeout
    where = cluster_flag(directory, cluster)
    chosen = parse_names(founders)

    async def ask(client: Client) -> GroupInfo:
        chosen_names = names or [_next_name(await client.list_groups(timeout=timeout))]
        group = await client.place_group(*chosen_names, founders=chosen, timeout=timeout)
        while wait and not group.is_established:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"group {group.id} is placed, and not established: {', '.join(group.missing)} did not create a"
                    f" directory within {timeout:g} s",
                    remedy=f"see why with {program()} doctor{where}; or give it up:"
                    f" {program()} group cancel {group.id}{where}",
                )
            await asyncio.sleep(LOOK_SECONDS)
            groups = await client.list_groups(timeout=max(LOOK_SECONDS, deadline - time.monotonic()))
            group = next((each for each in groups if each.id == group.id), None) or _cancelled(group)
        return group

    group = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json(_described(group))
    else:
        print(f"group {group.id} is {_state(group)} on {', '.join(group.founders)}")


@app.command()
def cancel(
    group: Annotated[int, typer.Argument(metavar="GROUP", min=1, help="The id of the group.")],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel a group that is not established, because a founder is missing. Safe to repeat."""
    find_cluster(directory, cluster).ask(lambda client: client.cancel_group(group, timeout=timeout))
    if output is Output.JSON:
        print_json({"group": group, "cancelled": True})
    else:
        print(f"group {group} is cancelled")


NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The name of a member of the cluster.")]
GroupArgument = Annotated[int, typer.Argument(metavar="GROUP", min=1, help="The id of the group.")]


@app.command()
def add_member(
    group: GroupArgument,
    node: NodeArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return only when the node is a voter.")] = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a node to an established group, in which it votes when it has caught up. Safe to repeat."""
    deadline = time.monotonic() + timeout

    async def ask(client: Client) -> GroupInfo:
        found = await client.add_group_member(group, node, timeout=timeout)
        while wait and node not in await _voters(client, group, timeout):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{node} is a host of group {group}, and no voter of it after {timeout:g} s; it goes on",
                    remedy=f"see why with {program()} doctor{cluster_flag(directory, cluster)}",
                )
            await asyncio.sleep(LOOK_SECONDS)
        return found

    found = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json(_described(found))
    else:
        print(f"{node} {'votes in' if wait else 'is a host of'} group {group}, on {', '.join(found.hosts)}")


@app.command()
def remove_member(
    group: GroupArgument,
    node: NodeArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return only when the node has left.")] = True,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a node from an established group, to which it is never added again. Safe to repeat."""
    deadline = time.monotonic() + timeout

    async def ask(client: Client) -> GroupInfo:
        found = await client.remove_group_member(group, node, timeout=timeout)
        while wait and node in found.hosts:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{node} has not left group {group} after {timeout:g} s, because no majority of the others answers,"
                    " or one of them has not caught up; it leaves as soon as it can",
                    remedy=f"see why with {program()} doctor{cluster_flag(directory, cluster)}",
                )
            await asyncio.sleep(LOOK_SECONDS)
            groups = await client.list_groups(timeout=max(LOOK_SECONDS, deadline - time.monotonic()))
            found = next((each for each in groups if each.id == group), found)
        return found

    found = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json(_described(found))
    else:
        state = "has left" if node not in found.hosts else "is leaving"
        print(f"{node} {state} group {group}, which is on {', '.join(found.hosts)}")


async def _voters(client: Client, group: int, timeout: float) -> set[str]:
    """Return the names of the nodes that vote in a group, by the status of the node that leads it."""
    for node in await client.status(timeout=min(timeout, STATUS_SECONDS)):
        for part in node.get("hosted") or []:
            if part["group"] == group and part.get("role") == "leader":
                return {name_of(NodeId(voter)) for voter in part["membership"]["voters"]}
    return set()


@app.command()
def remove(
    group: GroupArgument,
    lost: Annotated[
        bool, typer.Option("--lost", help="Also if its nodes do not answer, because they never do again.")
    ] = False,
    yes: Annotated[
        str, typer.Option("--yes-remove-group", metavar="WORDS", help="The id of the group in words, to accept it.")
    ] = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove an established group that has nothing left, permanently. Safe to repeat.

    Its streams must be removed before, see `stream move` and `stream remove`, and no actor be spread over it. Its nodes
    remove their directories of it, and the receipts of its sessions go with them.
    """
    words = number_words(group)
    confirm(
        yes,
        words,
        what="the id of the group in words",
        option=f'--yes-remove-group "{words}"',
    )
    find_cluster(directory, cluster).ask(lambda client: client.remove_group(group, lost=lost, timeout=timeout))
    if output is Output.JSON:
        print_json({"group": group, "removed": True})
    else:
        print(f"group {group} is removed; its nodes remove their directories of it")


@app.command("list")
def list_groups(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups that are placed, without group 0: leader, members, and the members that do not answer."""
    from viewstamp.doctor.groups import group_state

    async def ask(client: Client) -> tuple[list[GroupInfo], Sequence[Mapping[str, Any]]]:
        groups = await client.list_groups(timeout=timeout)
        return groups, await client.status(timeout=min(timeout, STATUS_SECONDS)) if groups else []

    groups, nodes = find_cluster(directory, cluster).ask(ask)
    states = [group_state(nodes, each.id, each.hosts) for each in groups]
    if output is Output.JSON:
        described = zip(groups, states, strict=True)
        print_json({"groups": [{**_described(group), **state} for group, state in described]})
        return
    rows = [
        (
            str(each.id),
            state["leader"],
            state["term"],
            state["commit_index"],
            _few(state["members"]),
            _few([name for name in state["members"] if name not in state["answering"]]) or None,
            _few(each.streams),
        )
        for each, state in zip(groups, states, strict=True)
    ]
    columns = ["group", "leader", "term", "committed", "members", "no answer", "name"]
    print_table(columns, rows, empty="no groups but group 0")
    for each in groups:
        if each.missing:
            print(f"group {each.id} waits for {', '.join(each.missing)}")
        if each.leaving:
            print(f"{', '.join(each.leaving)} is leaving group {each.id}")


def _next_name(groups: Collection[GroupInfo]) -> str:
    """Return the first of group-1, group-2, ... that no established group has.

    A repetition of the command after an error so finds the group that the first one has placed.
    """
    taken = {name for group in groups if group.is_established for name in group.streams}
    return next(name for number in itertools.count(1) if (name := f"group-{number}") not in taken)


def _cancelled(group: GroupInfo) -> GroupInfo:
    raise UnavailableError(
        f"group {group.id} was cancelled while it was being established", remedy="place it again if it is needed"
    )


def _few(names: Collection[str]) -> str:
    """Return the names that fit into a column, and the number of the others."""
    shown = list(names)
    while len(shown) > 1 and len(",".join(shown)) > COLUMN_WIDTH:
        shown.pop()
    return ",".join(shown) + (f" +{len(names) - len(shown)}" if len(shown) < len(names) else "")


def _state(group: GroupInfo) -> str:
    return "established" if group.is_established else "placed"


def _described(group: GroupInfo) -> dict[str, object]:
    return {
        "id": group.id,
        "streams": list(group.streams),
        "founders": dict(group.founders),
        "hosted": list(group.hosted),
        "is_established": group.is_established,
        "hosts": list(group.hosts),
        "leaving": list(group.leaving),
    }
