"""``viewstamp cluster fork``: begins a new cluster with the files of stopped nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.fork import ForkResult
    from viewstamp.local.forking import Forking

__all__ = ["ConfigsOption", "IdOption", "SourcesOption", "fork", "new_cluster_fields", "print_new_cluster"]

_FINDINGS_MAX: Final = 20

ConfigsOption = Annotated[
    list[Path] | None,
    typer.Option("--config", metavar="FILE", help="Settings of a node, instead of --dir. May be repeated."),
]
SourcesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--from", metavar="DATA_DIR", help="Data directory of an old member. May be repeated. [default: the nodes' own]"
    ),
]
IdOption = Annotated[
    str,
    typer.Option("--id", metavar="ID", help="Id of the new cluster. [default: from the settings, else random]"),
]


def fork(
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    config: ConfigsOption = None,
    source: SourcesOption = None,
    cluster_id: IdOption = "",
    original_goes_on: Annotated[
        bool, typer.Option("--original-goes-on", help="The files are a copy; the original cluster keeps working.")
    ] = False,
    timeout: TimeoutOption = 3.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Begin a new cluster with the files of stopped nodes, at the addresses in their settings.

    All topics, sinks and actors are kept, and sessions end. The new id is written into the settings. The old files stay
    in old-cluster-1/ of each data directory. It needs the files of a majority of the old members; with fewer, see
    `viewstamp recover`. An interrupted fork is finished by a repetition.
    """
    from viewstamp.local.forking import Forking, refuse_while_majority_answers

    forking = Forking.of(directory, config or [], cluster=cluster_id)
    result = forking.finish()
    if result is None:
        judged = forking.judge([str(each) for each in source or ()])
        if not original_goes_on:
            refuse_while_majority_answers(judged, forking.tls, seconds=timeout)
        result = forking.run(judged)
    print_new_cluster(forking, result, config or [], directory, output)


def new_cluster_fields(forking: Forking, result: ForkResult) -> dict[str, object]:
    """Return the new cluster as JSON has it."""
    members = [dict(zip(("id", "address", "data_dir"), row, strict=True)) for row in _member_rows(forking)]
    fields = {"cluster_id": result.cluster, "from": result.source, "index": result.end - 1, "term": result.term}
    return {**fields, "groups": list(result.groups), "members": members, "old_files": result.aside}


def _member_rows(forking: Forking) -> list[tuple[str, str, str]]:
    return [(str(node.settings.node.id), node.settings.node.advertise, node.data_dir) for node in forking.members]


def print_new_cluster(
    forking: Forking, result: ForkResult, config: Sequence[Path], directory: Path, output: Output
) -> None:
    """Print the members of a new cluster, and how to start it."""
    if output is Output.JSON:
        print_json(new_cluster_fields(forking, result))
        return
    for finding in result.findings[:_FINDINGS_MAX]:
        say(str(finding))
    end = f" up to index {result.source_end - 1}" if result.source_end else ""
    print(fitted(f"cluster {result.cluster} begins with the log of {result.source}{end}; its voters:", sys.stdout))
    print_table(["node", "address", "data"], _member_rows(forking))
    if result.groups:
        print(f"with the groups {', '.join(map(str, result.groups))}")
    for place in result.aside.values():
        print(f"old files: {place}")
    if forking.tls is not None:
        why = f"Make new certificates, because these name cluster {result.source}"
        if config:
            print(fitted(f"{why}: see docs/recovery.md, Certificates of the new cluster", sys.stdout))
        else:
            print(f"{fitted(f'{why}:', sys.stdout)}\n  {program()} tls new --dir {os.path.relpath(directory)} --renew")
    if config:
        print(f"Start each node: {program()} node run --config FILE")
    else:
        print(f"Start it: {program()} cluster start{dir_flag(directory, DEFAULT_DIRECTORY)}")
