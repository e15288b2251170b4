"""``viewstamp snapshot``: have snapshots taken, and see which there are. Each member has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from viewstamp.cli.options import (
    ClusterOption,
    DirOption,
    Output,
    OutputOption,
    TimeoutOption,
    print_json,
    print_table,
    say,
)
from viewstamp.cli.target import Target

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import SnapshotInfo

__all__ = ["app"]

app = typer.Typer(help="Take and list snapshots of the state.", no_args_is_help=True)

NodeOption = Annotated[
    str | None, typer.Option("--node", metavar="NODE", help="This member alone. [default: all that answer]")
]
ResultT = TypeVar("ResultT")


@app.command()
def create(
    node: NodeOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a snapshot now, and return when it is durable. Writes go on meanwhile; the log before it can be dropped."""

    async def take(client: Client) -> list[tuple[str, SnapshotInfo]]:
        return await _of_each(client, node, lambda name: client.create_snapshot(name, timeout=timeout))

    taken = Target.resolve(directory, cluster).ask(take)
    if output is Output.JSON:
        listed = [
            {"node": name, "index": each.index, "term": each.term, "bytes": each.bytes, "seconds": each.seconds}
            for name, each in taken
        ]
        print_json({"snapshots": listed})
    else:
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
    """List the snapshots on disk, the newest first. Index: what comes after it is replayed from the log."""

    async def look(client: Client) -> list[tuple[str, list[SnapshotInfo]]]:
        return await _of_each(client, node, lambda name: client.list_snapshots(name, timeout=timeout))

    found = [(name, each) for name, listed in Target.resolve(directory, cluster).ask(look) for each in listed]
    if output is Output.JSON:
        listed = [
            {"node": name, "index": each.index, "term": each.term, "bytes": each.bytes, "created": each.created}
            for name, each in found
        ]
        print_json({"snapshots": listed})
    else:
        rows = [(name, each.index, each.term, each.bytes, _time(each.created)) for name, each in found]
        print_table(["node", "index", "term", "bytes", "created"], rows)


async def _of_each(
    client: Client, node: str | None, question: Callable[[str], Awaitable[ResultT]]
) -> list[tuple[str, ResultT]]:
    """Ask ``node``, or every member that answers; say which do not.

    Raises:
      UnavailableError: nobody answers.
      ViewstampError: the first that went wrong, where it did nowhere well.
    """
    from viewstamp.errors import UnavailableError

    if node is not None:
        return [(node, await question(node))]
    statuses = await client.status()
    names = sorted((str(each["id"]) for each in statuses if each["reachable"]), key=lambda name: (len(name), name))
    for away in (each for each in statuses if not each["reachable"]):
        say(f"{away['address']} does not answer: {away.get('error')}")
    if not names:
        raise UnavailableError("no node answers", remedy="start them: viewstamp cluster start")
    answers = await asyncio.gather(*(question(name) for name in names), return_exceptions=True)
    failures = [
        (name, answer) for name, answer in zip(names, answers, strict=True) if isinstance(answer, BaseException)
    ]
    for name, failure in failures:
        say(f"{name}: {failure}")
    if len(failures) == len(names):
        raise failures[0][1]
    return [
        (name, answer) for name, answer in zip(names, answers, strict=True) if not isinstance(answer, BaseException)
    ]


def _time(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
