"""``viewstamp get`` and ``viewstamp scan``: find the last records of keys of a keyed topic."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated

import typer

from viewstamp.cli.options import ClusterOption, DirOption, TimeoutOption
from viewstamp.cli.read import ReadOutput, ReadOutputOption, RecordPrinter
from viewstamp.local.find import find_cluster
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import say

__all__ = ["get", "scan"]


def get(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str, typer.Argument(metavar="KEY")],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print the last record of a key of a keyed topic. Exit code 1 if there is none, or the key was deleted."""
    record = find_cluster(directory, cluster).ask(lambda client: client.get(topic, key, timeout=timeout))
    if record is None:
        say(f"topic {topic} has no record with the key {key!r}")
        raise typer.Exit(1)
    printer = RecordPrinter(output)
    printer.write(record)
    printer.flush()


def scan(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[str, typer.Option("--from", metavar="KEY", help="First key. [default: the first one]")] = "",
    end: Annotated[
        str | None, typer.Option("--to", metavar="KEY", help="The key before which it ends. [default: none]")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin with this text.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after N records.")] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print the last record of each key of a keyed topic, in the order of the keys.

    Records that are appended during a scan may be in it. The timeout applies to each answer of a node.
    """
    if prefix is not None and (start or end is not None):
        raise typer.BadParameter("--prefix names a range of keys: leave --from and --to out")
    if end is not None and end.encode() <= start.encode():
        raise typer.BadParameter(f"--to {end!r} is not behind --from {start!r}, so no key is between them")
    target = find_cluster(directory, cluster)

    async def copy() -> None:
        printer = RecordPrinter(output)
        left = limit or -1  # Without a limit it never becomes 0.
        async with target.connect(timeout) as client, aclosing(client.scan(topic, start, end, prefix=prefix)) as found:
            async for record in found:
                printer.write(record)
                left -= 1
                if not left:
                    break
        printer.flush()

    run_async(copy())
