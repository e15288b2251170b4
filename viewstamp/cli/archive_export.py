"""``viewstamp archive export``: adds the new records of a topic to an Iceberg table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.local.find import find_cluster
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json
from viewstamp.terminal.progress import WorkProgress

if TYPE_CHECKING:
    from viewstamp.archive.export import Exported

__all__ = ["export"]


def _until(text: str) -> int | str:
    if text in ("committed", "archived"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is no position: write committed, archived, or a number from 1 on")
    return int(text) + 1


def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    table: Annotated[
        str, typer.Option("--table", metavar="NAMESPACE.NAME", help="The table. It is created.", show_default=False)
    ],
    warehouse: Annotated[
        Path | None,
        typer.Option("--warehouse", metavar="DIR", help="The table is here, with a catalogue in catalog.db."),
    ] = None,
    catalog: Annotated[
        str,
        typer.Option("--catalog", metavar="NAME", help="The table is in this catalogue of .pyiceberg.yaml."),
    ] = "",
    until: Annotated[
        str,
        typer.Option("--until", metavar="WHERE", help="Last record: committed, archived, or a position, inclusive."),
    ] = "committed",
    skip_deleted: Annotated[
        bool, typer.Option("--skip-deleted", help="Go on behind records that the topic has deleted meanwhile.")
    ] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add the records to an Iceberg table that it lacks, each once. Safe to repeat: it begins where the table ends.

    The timeout applies to each answer of a node.
    """
    end = _until(until)
    target = find_cluster(directory, cluster)

    async def work() -> Exported:
        from viewstamp.archive.export import export_topic
        from viewstamp.archive.iceberg import TablePlace

        place = TablePlace(table, warehouse, catalog)
        place.check()
        async with target.connect(timeout) as client:
            return await export_topic(
                client,
                topic,
                place,
                entropy=random.SystemRandom(),
                until=end,
                skip_deleted=skip_deleted,
                on_begin=lambda _first, _end, size: progress.begin(f"exporting {topic}", size),
                on_bytes=progress.add,
            )

    with WorkProgress(output) as progress:
        done = run_async(work())
    if output is Output.JSON:
        print_json(
            {
                "topic": topic,
                "table": table,
                "location": done.location,
                "first_position": done.first if done.records else None,
                "last_position": done.end - 1,
                "records": done.records,
                "skipped": done.skipped,
                "files": done.files,
                "bytes": done.bytes,
                "snapshots": list(done.snapshots),
            }
        )
        return
    if done.skipped:
        print(f"{done.skipped:,} records were deleted before they were exported")
    if not done.records:
        print(f"table {table}: nothing new, up to position {done.end - 1:,}")
    else:
        print(f"table {table}: {done.records:,} new records, positions {done.first:,} to {done.end - 1:,}")
        print(f"{done.files} new file{'' if done.files == 1 else 's'}, {done.bytes:,} bytes, in {done.location}")
