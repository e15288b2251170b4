"""``viewstamp stream``: operates the streams of topics, and the groups that have them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.confirmation import confirm
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.groups import group_ids
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.errors import ConfigError, UnavailableError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.flags import program
from viewstamp.terminal.number_words import number_words
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.ended_stream import EndedStream
    from viewstamp.client.lost_streams import StreamLoss
    from viewstamp.client.results import SpreadTopicInfo

__all__ = ["app"]

_LOOK_SECONDS = 0.1

app = typer.Typer(
    cls=CommandGroup, help="Operate the streams of topics, and the groups that have them.", no_args_is_help=True
)


_Group = Annotated[
    str, typer.Option("--group", metavar="GROUP", help="The id or a name of an established group.", show_default=False)
]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="GROUP", help="The id or a name of an established group. [default: fewest streams]"
        ),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a stream to a topic with streams, permanently.

    It gets records without a key. The keys of all records stay in their streams, until one of these ends into the new
    stream: see `stream move`.
    """

    async def extend(client: Client) -> SpreadTopicInfo:
        deadline = time.monotonic() + timeout
        topic = await client.add_stream(name, group=await _group_id(client, group, timeout), timeout=timeout)
        await client.describe_stream(name, topic.streams, timeout=max(deadline - time.monotonic(), _LOOK_SECONDS))
        return topic

    topic = find_cluster(directory, cluster).ask(extend)
    if output is Output.JSON:
        print_json({"stream": topic.streams, "group": topic.groups[-1]})
    else:
        print(f"topic {name} has stream {topic.streams}, in group {topic.groups[-1]}")


async def _group_id(client: Client, group: str | None, timeout: float) -> int | None:
    """Return the id of a group that is given by id or by name; None = none is given. Raises typer.BadParameter."""
    ids = await group_ids(client, group, timeout)
    if len(ids) > 1:
        raise typer.BadParameter(f"{group!r} names {len(ids)} groups; name one")
    return ids[0] if ids else None


@app.command()
def move(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    stream: Annotated[int, typer.Argument(metavar="STREAM", help="The number of the stream.", min=1)],
    group: _Group,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move the keys of a stream to another group, permanently: to a new stream there. Safe to repeat.

    No append fails, and the records of each key keep their order. The records of the old stream stay where they are.
    """

    async def relocate(client: Client) -> EndedStream:
        deadline = time.monotonic() + timeout
        chosen = await _group_id(client, group, timeout)
        if chosen is None:
            raise typer.BadParameter("--group names no group; name one")
        topic = await client.move_stream(name, stream, chosen, timeout=timeout)
        return await _wait_sealed(client, topic, stream, deadline)

    _print_ended(name, stream, find_cluster(directory, cluster).ask(relocate), output)


@app.command()
def seal(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    stream: Annotated[int, typer.Argument(metavar="STREAM", help="The number of the stream.", min=1)],
    into: Annotated[
        int | None,
        typer.Option("--into", metavar="N", min=1, help="The stream that gets its keys.", show_default="fewest slots"),
    ] = None,
    is_lost: Annotated[
        bool,
        typer.Option("--lost", help="Its group never has a majority again. ACKNOWLEDGED RECORDS LOSE THEIR POSITION."),
    ] = False,
    yes: Annotated[
        str,
        typer.Option(
            "--yes-lose-stream", metavar="WORD", help="The number of the stream in words, instead of typing it."
        ),
    ] = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """End a stream of a topic, permanently: later records of its keys go to another stream. Safe to repeat.

    No append fails, and the records of each key keep their order. The records of the stream stay where they are. With
    --lost it does not need the group of the stream; it prints the loss, and asks for the number of the stream in words.
    A stream that is sealed already is then noted as lost, so that it can be removed without its group.
    """
    if yes and not is_lost:
        raise ConfigError("--yes-lose-stream needs --lost; nothing was changed", remedy="add --lost, or leave it out")
    found = find_cluster(directory, cluster)
    if is_lost:
        topic = found.ask(lambda client: client.describe_spread_topic(name, timeout=timeout))
        if not (topic.lost_at(stream) or topic.gone_at(stream)):
            loss = found.ask(lambda client: client.describe_loss(name, stream, timeout=timeout))
            if not loss.is_led:
                _report(loss)
                words = number_words(stream)
                confirm(
                    yes,
                    words,
                    what="the number of the stream in words",
                    option=f'--yes-lose-stream "{words}"',
                )

    async def end(client: Client) -> EndedStream:
        deadline = time.monotonic() + timeout
        if is_lost:
            topic = await client.lose_stream(name, stream, into=into, timeout=timeout)
        else:
            topic = await client.seal_stream(name, stream, into=into, timeout=timeout)
        return await _wait_sealed(client, topic, stream, deadline)

    _print_ended(name, stream, found.ask(end), output)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    stream: Annotated[int, typer.Argument(metavar="STREAM", help="The number of the stream.", min=1)],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a sealed stream of which no record is kept, permanently. Safe to repeat.

    It must be ended first, and its records deleted: see `stream seal` and `topic trim`. Its number is never used again.
    """
    topic = find_cluster(directory, cluster).ask(lambda client: client.remove_stream(name, stream, timeout=timeout))
    if output is Output.JSON:
        print_json({"stream": stream, "phase": topic.phase_of(stream), "gone_at": topic.gone_at(stream)})
    else:
        group = topic.group_of(stream)
        print(f"stream {stream} of {name} is removed; group {group} deletes what it has of it")


async def _wait_sealed(client: Client, topic: SpreadTopicInfo, stream: int, deadline: float) -> EndedStream:
    """Wait until a stream that ends is sealed, or the deadline has passed; return its end."""
    while stream not in topic.sealed_streams and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
        with suppress(UnavailableError):
            topic = await client.describe_spread_topic(topic.name, timeout=max(deadline - time.monotonic(), 0.1))
    return next(each for each in topic.closed if each.stream == stream)


def _print_ended(name: str, stream: int, ended: EndedStream, output: Output) -> None:
    """Print the end of a stream. Raises typer.Exit if it is not sealed yet."""
    last = ended.end - 1 if ended.end else None
    if output is Output.JSON:
        lost = {"lost_at": ended.lost_at} if ended.lost_at else {}
        print_json({"stream": stream, "phase": ended.phase, "into": ended.into, "last_position": last, **lost})
    elif ended.lost_at:
        print(
            f"stream {stream} of {name} is lost behind position {last}; its keys go to stream {ended.into}. Readers"
            f" still need its nodes for positions of the topic below {ended.lost_at}; to do without"
            f" them, delete what is below it: {program()} topic trim {name} --before {ended.lost_at}"
        )
    elif last is not None:
        print(f"stream {stream} of {name} is sealed behind position {last}; its keys go to stream {ended.into}")
    else:
        print(f"stream {stream} of {name} is closing, and goes on to be sealed: its appends wait until then")
    if last is None:
        say("its group or group 0 has no majority, or a node does not answer. See why: viewstamp doctor")
        raise typer.Exit(UnavailableError.exit_code)


def _report(loss: StreamLoss) -> None:
    """Print the loss to stderr, because the result on stdout may go into a pipe."""
    group = loss.topic.group_of(loss.stream)
    if loss.stream in loss.topic.sealed_streams:
        say(
            f"Stream {loss.stream} of {loss.topic.name}, in group {group}, is sealed: its records up to position"
            f" {loss.end - 1} have a position in the topic."
        )
    else:
        say(
            f"Stream {loss.stream} of {loss.topic.name}, in group {group}, ends behind its position {loss.end - 1}: the"
            " records up to it have a position in the topic."
        )
    for node, last in loss.nodes.items():
        say(f"{node} answers: records up to position {last} of the stream are committed")
    if loss.silent:
        say(f"no answer: {', '.join(loss.silent)}")
    if loss.stream in loss.topic.sealed_streams:
        say(
            "No record loses its position. FROM NOW ON ITS KEPT RECORDS CAN BE DELETED WITHOUT ITS GROUP, by `topic"
            " trim` and `stream remove`. There is no way back, also if the nodes are found again."
        )
        return
    say(
        f"ACKNOWLEDGED RECORDS NEVER GET A POSITION IN THE TOPIC: at least {loss.lost_records:,}; silent nodes may have"
        " more. A committed batch of a sink becomes visible without the records that it has behind this position. There"
        " is no way back, also if the nodes are found again."
    )


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
