"""``viewstamp snapshot``: takes and lists snapshots. Each member has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.local.find import find_cluster
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import SnapshotInfo

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Take and list snapshots of the state.", no_args_is_help=True)

NodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NODE", help="Only this member. [default: all that answer]")
]
ResultT = TypeVar("ResultT")
_Answers: TypeAlias = tuple[list[tuple[str, ResultT]], list[dict[str, str]]]
"""The answer of each member, with its name; and {node, error} for each member without one."""


@app.command()
def create(
    node: NodeOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a snapshot now, and return when it is durable. Writes continue meanwhile. Older log can then be deleted."""
    target = find_cluster(directory, cluster)

    async def take(client: Client) -> _Answers[SnapshotInfo]:
        return await _of_each(client, target, node, lambda name: client.create_snapshot(name, timeout=timeout))

    taken, failures = target.ask(take)
    if output is Output.JSON:
        listed = [
            {"node": name, "index": each.index, "term": each.term, "bytes": each.bytes, "seconds": each.seconds}
            for name, each in taken
        ]
        print_json({"snapshots": listed, "failures": failures})
    else:
        _say_failures(failures)
        rows = [(name, each.index, each.term, each.bytes, f"{each.seconds:.2f} s") for name, each in taken]
        print_table(["node", "index", "term", "bytes", "took"], rows)


@app.command("list")
def list_snapshots(
    node: NodeOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the snapshots on disk, the newest first. A restart replays the log from the index of the newest one."""
    target = find_cluster(directory, cluster)

    async def look(client: Client) -> _Answers[list[SnapshotInfo]]:
        return await _of_each(client, target, node, lambda name: client.list_snapshots(name, timeout=timeout))

    answers, failures = target.ask(look)
    found = [(name, each) for name, listed in answers for each in listed]
    if output is Output.JSON:
        listed = [
            {"node": name, "index": each.index, "term": each.term, "bytes": each.bytes, "created": each.created}
            for name, each in found
        ]
        print_json({"snapshots": listed, "failures": failures})
    else:
        _say_failures(failures)
        rows = [(name, each.index, each.term, each.bytes, _time(each.created)) for name, each in found]
        print_table(["node", "index", "term", "bytes", "created"], rows)


async def _of_each(
    client: Client, target: ClusterTarget, node: str | None, question: Callable[[str], Awaitable[ResultT]]
) -> _Answers[ResultT]:
    """Ask ``node``, or every member that answers; return the answers by node, and a failure for each other member.

    Raises:
      UnavailableError: no member answers.
      ViewstampError: the first failure, if no member succeeded.
    """
    from viewstamp.doctor.status import nobody_leads, summary

    if node is not None:
        return [(node, await question(node))], []
    statuses = await client.status()
    names = sorted((str(each["id"]) for each in statuses if each["reachable"]), key=lambda name: (len(name), name))
    failures = [
        {"node": target.names.get(str(each["address"]), str(each["address"])), "error": str(each.get("error"))}
        for each in statuses
        if not each["reachable"]
    ]
    if not names:
        raise nobody_leads(summary(statuses, target.names)["nodes"], target.where, is_read=False)
    answered: list[tuple[str, ResultT]] = []
    first: BaseException | None = None
    found = await asyncio.gather(*(question(name) for name in names), return_exceptions=True)
    for name, answer in zip(names, found, strict=True):
        if isinstance(answer, BaseException):
            first = first or answer
            failures.append({"node": name, "error": str(answer)})
        else:
            answered.append((name, answer))
    if first is not None and not answered:
        raise first
    return answered, failures


def _say_failures(failures: list[dict[str, str]]) -> None:
    for failure in failures:
        say(f"no snapshot from {failure['node']}: {failure['error']}")


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
