"""``viewstamp wal``: look at a node's files without the node. Offline and read-only."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import OutputOption
from viewstamp.cli.read import ReadOutput, ReadOutputOption, RecordPrinter
from viewstamp.errors import ConfigError
from viewstamp.terminal.output import Output, print_json, print_table

__all__ = ["app"]

CORRUPTION = 7

app = typer.Typer(cls=CommandGroup, help="Look at a node's files, offline and read-only.", no_args_is_help=True)

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="A data directory, a wal directory or a segment.")]


@app.command()
def inspect(path: PathArgument, output: OutputOption = Output.TABLE) -> int:
    """Print a log as a tree: segments, groups, batches. With --output json one object a line. Exit 7 for corruption."""
    from viewstamp.host.disk import RealDisk
    from viewstamp.wal.offline import inspect as entries_of

    verdict: object = None
    for entry in entries_of(RealDisk(), _log_at(path)):
        verdict = entry.fields.get("verdict")
        if output is Output.JSON:
            fields = {"kind": entry.kind, "depth": entry.depth, "location": entry.location, **entry.fields}
            sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(f"{entry}\n")
    return CORRUPTION if verdict == "corruption" else 0


@app.command()
def verify(path: PathArgument, output: OutputOption = Output.TABLE) -> int:
    """Check every checksum and tell a torn tail from corruption. Exit 7 only for corruption."""
    from viewstamp.host.disk import RealDisk
    from viewstamp.wal.offline import verify as verify_files

    found = verify_files(RealDisk(), _log_at(path))
    if output is Output.JSON:
        print_json(found.as_dict())
    else:
        counts = {name: value for name, value in found.as_dict().items() if name not in ("damage", "groups")}
        print_table(list(counts), [list(counts.values())])
        for damage in found.damage:
            print(f"damage in {damage.segment} at byte {damage.location}:")
            print(f"  expected {damage.expected}\n  found {damage.found}")
        if found.verdict == "corruption":
            print("nothing was changed; the node fetches what it lost from the others when it starts, if there are any")
    return CORRUPTION if found.verdict == "corruption" else 0


@app.command()
def read(
    path: PathArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print a topic's records out of the files: all that are still there, trimmed ones too.

    The last of them may not be committed: one node cannot know.
    """
    from viewstamp.local.offline import offline_records

    printer = RecordPrinter(output)
    for record in offline_records(_log_at(path), topic):
        printer.write(record)
    printer.flush()


def _log_at(path: Path) -> str:
    """Return where the log is. Raises ConfigError for a file that is no segment, which is no fault of the disk."""
    if path.is_file() and path.suffix != ".segment":
        raise ConfigError(
            f"{path} is no log",
            remedy="name a node's data directory, its wal directory, or a file NUMBER.segment in it",
        )
    return os.path.abspath(path)
