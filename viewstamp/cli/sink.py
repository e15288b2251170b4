"""``viewstamp sink``: what sinks have committed and have staged; and forgetting one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.sinks import SinkInfo

__all__ = ["app"]

_TOPICS_SHOWN = 3
"""Topics of a sink in a line of the list; ``sink describe`` shows all of them."""

app = typer.Typer(cls=CommandGroup, help="List, describe and forget sinks.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A sink; see: viewstamp sink list")]
YesOption = Annotated[bool, typer.Option("--yes", help="Forget it. Without this, say what that would mean.")]


@app.command("list")
def list_sinks(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the sinks: the last batch of each, the topics that it went to, and what is staged and not committed."""
    sinks = find_cluster(directory, cluster).ask(lambda client: client.list_sinks(timeout=timeout))
    if output is Output.JSON:
        print_json({"sinks": [_described(sink) for sink in sinks]})
    else:
        rows = [(s.name, _batch(s), _time(s), _topics(s), s.attempts, s.sealed, s.bytes) for s in sinks]
        print_table(["sink", "batch", "committed", "topics", "attempts", "sealed", "bytes"], rows)


@app.command()
def describe(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one sink: whose it is, where the records of its last batch stand, and what is staged."""
    sink = find_cluster(directory, cluster).ask(lambda client: client.describe_sink(name, timeout=timeout))
    if output is Output.JSON:
        print_json(_described(sink))
        return
    kept = f", kept {sink.keep_seconds:g} s" if sink.attempts else ""
    facts = [("owner", sink.owner or None), ("run", sink.run or None), ("batch", _batch(sink))]
    facts += [("committed", _time(sink)), ("index", sink.index or None)]
    if sink.forget_seconds:
        facts += [("kept", f"{sink.forget_seconds:,.0f} s after its last attempt or commit")]
    facts += [("attempts", f"{sink.attempts}, {sink.sealed} of them sealed: {sink.bytes:,} bytes{kept}")]
    print_table(["sink", sink.name], facts)
    if sink.ranges:
        print()
        print_table(["topic", "first", "count"], sink.ranges)


@app.command()
def forget(
    name: NameArgument,
    yes: YesOption = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Forget what a sink has committed, and drop what is staged for it. A BATCH WRITTEN AGAIN IS THEN THERE TWICE.

    The records stay where they are. For sinks that nobody is going to write to again.
    """

    async def drop(client: Client) -> SinkInfo:
        sink = await client.describe_sink(name, timeout=timeout)
        if yes:
            await client.forget_sink(name, timeout=timeout)
        return sink

    sink = find_cluster(directory, cluster).ask(drop)
    if not yes:
        from viewstamp.errors import ConfigError

        raise ConfigError(f"sink {name} is as it was. {_meaning(sink)}", remedy="add --yes where that is meant")
    say(_meaning(sink))
    if output is Output.JSON:
        print_json({"forgotten": _described(sink)})
    else:
        print(f"sink {name} is forgotten")


def _meaning(sink: SinkInfo) -> str:
    """Say what is lost with a sink."""
    said = "It has committed no batch."
    if sink.batch >= 0:
        said = (
            f"That it has committed its batches up to {sink.batch} is what is forgotten: WHOEVER WRITES ONE OF THEM"
            " AGAIN, as a query that is restarted from its checkpoint may do, WRITES ITS RECORDS A SECOND TIME."
        )
    staged = f" {sink.bytes:,} bytes that are staged for it and not committed go, too." if sink.attempts else ""
    return f"{said}{staged} Records that are committed stay where they are."


def _described(sink: SinkInfo) -> dict[str, object]:
    ranges = sink.ranges if sink.ranges is None else [each._asdict() for each in sink.ranges]
    return {**asdict(sink), "ranges": ranges}


def _batch(sink: SinkInfo) -> int | None:
    return None if sink.batch < 0 else sink.batch


def _topics(sink: SinkInfo) -> str | None:
    """Return the topics of the last batch, shortened to the first ones; None = there is none, or they are not kept."""
    names = [each.topic for each in sink.ranges or []]
    more = f", and {len(names) - _TOPICS_SHOWN} more" if len(names) > _TOPICS_SHOWN else ""
    return ", ".join(names[:_TOPICS_SHOWN]) + more or None


def _time(sink: SinkInfo) -> str | None:
    if not sink.timestamp:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(sink.timestamp / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
