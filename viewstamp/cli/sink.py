"""``viewstamp sink``: lists and describes sinks, and forgets one."""

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
"""Number of topics of a sink that ``sink list`` prints; ``sink describe`` prints all of them."""

app = typer.Typer(cls=CommandGroup, help="List, describe and forget sinks.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A sink; see: viewstamp sink list")]
YesOption = Annotated[bool, typer.Option("--yes", help="Forget it. Without --yes, only print the consequences.")]


@app.command("list")
def list_sinks(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the sinks: the last committed batch, its topics, and the staged records that are not committed."""
    sinks = find_cluster(directory, cluster).ask(lambda client: client.list_sinks(timeout=timeout))
    if output is Output.JSON:
        print_json({"sinks": [_described(sink) for sink in sinks]})
    else:
        rows = [(s.name, _batch(s), _time(s), _topics(s), s.attempts, s.bytes) for s in sinks]
        print_table(
            ["sink", "batch", "committed", "topics", "attempts", "bytes"],
            rows,
            empty="no sinks: a sink appears with its first batch",
        )


@app.command()
def describe(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one sink: its owner, the positions of its last batch, and its staged records."""
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
    """Forget the commits of a sink, and drop its staged records. A BATCH WRITTEN AGAIN IS THEN IN THE TOPIC TWICE.

    Committed records stay. For sinks to which no query will write again.
    """

    async def drop(client: Client) -> SinkInfo:
        sink = await client.describe_sink(name, timeout=timeout)
        if yes:
            await client.forget_sink(name, timeout=timeout)
        return sink

    sink = find_cluster(directory, cluster).ask(drop)
    if not yes:
        from viewstamp.errors import ConfigError

        raise ConfigError(f"sink {name} was not changed. {_meaning(sink)}", remedy="add --yes to forget it")
    say(_meaning(sink))
    if output is Output.JSON:
        print_json({"forgotten": _described(sink)})
    else:
        print(f"forgot sink {name}")


def _meaning(sink: SinkInfo) -> str:
    """Return the consequences of forgetting a sink."""
    commits = "It has committed no batch."
    if sink.batch >= 0:
        commits = (
            f"Forgetting it means that its committed batches, up to {sink.batch}, are not recognised any more: IF ONE "
            "OF THEM IS WRITTEN AGAIN, for example by a query that restarts from its checkpoint, ITS RECORDS ARE IN "
            "THE TOPIC TWICE."
        )
    staged = f" {sink.bytes:,} staged bytes that are not committed are deleted." if sink.attempts else ""
    return f"{commits}{staged} Committed records stay."


def _described(sink: SinkInfo) -> dict[str, object]:
    ranges = sink.ranges if sink.ranges is None else [each._asdict() for each in sink.ranges]
    return {**asdict(sink), "ranges": ranges}


def _batch(sink: SinkInfo) -> int | None:
    return None if sink.batch < 0 else sink.batch


def _topics(sink: SinkInfo) -> str | None:
    """Return the first topics of the last batch as text; None = there is no batch, or its topics are not kept."""
    names = [each.topic for each in sink.ranges or []]
    more = f", and {len(names) - _TOPICS_SHOWN} more" if len(names) > _TOPICS_SHOWN else ""
    return ", ".join(names[:_TOPICS_SHOWN]) + more or None


def _time(sink: SinkInfo) -> str | None:
    if not sink.timestamp:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(sink.timestamp / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
