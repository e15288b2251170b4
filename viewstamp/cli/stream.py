"""``viewstamp stream``: operates the streams of topics, and the groups that have them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.errors import UnavailableError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.ended_stream import EndedStream

__all__ = ["app"]

_LOOK_SECONDS = 0.1

app = typer.Typer(
    cls=CommandGroup, help="Operate the streams of topics, and the groups that have them.", no_args_is_help=True
)


@app.command()
def seal(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    stream: Annotated[int, typer.Argument(metavar="STREAM", help="The number of the stream.", min=1)],
    into: Annotated[
        int | None,
        typer.Option("--into", metavar="N", min=1, help="The stream that gets its keys.", show_default="fewest slots"),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a stream of a topic, permanently: later records of its keys go to another stream. Safe to repeat.

    No append fails, and the records of each key keep their order. The records of the stream stay where they are.
    """

    async def end(client: Client) -> EndedStream:
        deadline = time.monotonic() + timeout
        topic = await client.seal_stream(name, stream, into=into, timeout=timeout)
        while stream not in topic.sealed_streams and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(UnavailableError):
                topic = await client.describe_spread_topic(name, timeout=max(deadline - time.monotonic(), 0.1))
        return next(each for each in topic.closed if each.stream == stream)

    ended = find_cluster(directory, cluster).ask(end)
    last = ended.end - 1 if ended.end else None
    if output is Output.JSON:
        print_json({"stream": stream, "phase": ended.phase, "into": ended.into, "last_position": last})
    elif last is not None:
        print(f"stream {stream} of {name} is sealed behind position {last}; its keys go to stream {ended.into}")
    else:
        print(f"stream {stream} of {name} is closing, and goes on to be sealed: its appends wait until then")
    if last is None:
        say("its group or group 0 has no majority, or a node does not answer. See why: viewstamp doctor")
        raise typer.Exit(UnavailableError.exit_code)


@app.command()
def balance(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Spread the leaders of the groups evenly over the nodes. Safe to repeat; exits with 3 if a group cannot move.

    A leader moves without an election timeout, and no acknowledged record is lost. The leader of group 0 counts, and
    stays.
    """
    leaders = find_cluster(directory, cluster).ask(lambda client: client.balance_leaders(timeout=timeout))
    if output is Output.JSON:
        rows = [
            {"group": each.group, "before": each.before, "leader": each.leader, "reason": each.reason}
            for each in leaders
        ]
        print_json({"groups": rows})
    else:
        print_table(
            ["group", "leader", "before"],
            [(str(each.group), each.leader or "none", each.before or "none") for each in leaders],
        )
        for each in leaders:
            if each.reason:
                print(f"group {each.group} is not moved: {each.reason}")
        moved = sum(each.is_moved for each in leaders)
        print(f"{moved} of {len(leaders)} leaders moved")
    if any(each.reason for each in leaders):
        raise typer.Exit(UnavailableError.exit_code)
