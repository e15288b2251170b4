"""``viewstamp wal``: inspects the files of a node, offline and read-only."""

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
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say

__all__ = ["app"]

CORRUPTION = 7

app = typer.Typer(cls=CommandGroup, help="Inspect the files of a node, offline and read-only.", no_args_is_help=True)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="A data directory, a wal directory or a segment file.")
]


@app.command()
def inspect(path: PathArgument, output: OutputOption = Output.TABLE) -> int:
    """Print a log as a tree of segments, groups and batches; as JSON one object a line. Exits with 7 for corruption."""
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
    """Check every checksum. Exits with 7 for corruption; a torn tail, which is normal after a crash, exits with 0."""
    from viewstamp.host.disk import RealDisk
    from viewstamp.wal.offline import verify as verify_files

    found = verify_files(RealDisk(), _log_at(path))
    if output is Output.JSON:
        print_json(found.as_dict())
    else:
        counts = {name: value for name, value in found.as_dict().items() if name not in ("damage", "groups", "path")}
        print_table(list(counts), [list(counts.values())])
        for damage in found.damage:
            print(f"damage in {damage.segment} at byte {damage.location}:")
            for line in (f"expected {damage.expected}", f"found {damage.found}"):
                print("  " + fitted(line, sys.stdout, indent="    "))
        if found.verdict == "corruption":
            print("No file was changed. A node repairs its log from another member when it starts; the only node of a")
            print("cluster cannot, so take a copy of its files first.")
    return CORRUPTION if found.verdict == "corruption" else 0


@app.command()
def read(
    path: PathArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print all records of a topic that are still in the files, also trimmed ones.

    The last records may not be committed, because the files of one node do not show that.
    """
    from viewstamp.local.offline import offline_records

    printer = RecordPrinter(output)
    archived: list[int] = []
    first = 0
    for record in offline_records(_log_at(path), topic, archived.append):
        first = first or record.position
        printer.write(record)
    printer.flush()
    if archived and first != 1:
        say(
            f"the archive has the records of {topic} before position {archived[0]};"
            f" this log has {f'those from position {first} on' if first else 'none of them'}: viewstamp archive log"
        )


def _log_at(path: Path) -> str:
    """Return the path of the log, after a note about other groups in the same data directory, which are not read.

    Raises ConfigError for a file that is not a segment, which is not a disk's fault.
    """
    from viewstamp.host.disk import RealDisk
    from viewstamp.node.data_dir import directories_of_groups

    if path.is_file() and path.suffix != ".segment":
        raise ConfigError(
            f"{path} is not a log",
            remedy="name a node's data directory, its wal directory, or a file NUMBER.segment in it",
        )
    if path.is_dir() and (groups := directories_of_groups(RealDisk(), str(path))):
        say(f"the logs of other groups are not read; name them one by one: {', '.join(groups.values())}")
    return os.path.abspath(path)
