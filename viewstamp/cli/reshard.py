"""``viewstamp reshard``: moves the instances of actors to another number of groups, while all nodes are stopped."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from viewstamp.cli.fork import ConfigsOption, IdOption, SourcesOption, new_cluster_fields, print_new_cluster
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
from viewstamp.terminal.flags import DEFAULT_DIRECTORY
from viewstamp.terminal.output import Output, print_json, print_table
from viewstamp.terminal.progress import WorkProgress

__all__ = ["reshard"]

_GROUPS_MAX: Final = 256


def reshard(
    groups: Annotated[
        int,
        typer.Option(
            "--groups",
            metavar="N",
            min=1,
            max=_GROUPS_MAX,
            help="The number of groups in which the instances shall live.",
        ),
    ],
    spread: Annotated[
        list[str] | None,
        typer.Option("--spread", metavar="NAME", help="Spread this actor of group 0 too. May be repeated."),
    ] = None,
    actor: Annotated[
        list[str] | None,
        typer.Option(
            "--actor",
            metavar="NAME=module:Class",
            help="Code of an actor that [actors] does not name. May be repeated.",
        ),
    ] = None,
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
    """Begin a new cluster, in which the instances of spread actors live in another number of groups.

    For stopped nodes, as `viewstamp cluster fork`: the files of a majority of the members of each group are needed, the
    new id is written into the settings, sessions end, and the old files stay in old-cluster-1/ of each data directory.
    All instances of actors that are spread get the first N groups; groups that are missing are added. Topics stay in
    their groups. It runs the code of the actors, reads the new files back, and compares all states before the new
    cluster takes effect. An interrupted reshard is finished by a repetition.
    """
    from viewstamp.local import resharding
    from viewstamp.local.forking import Forking, refuse_while_majority_answers

    forking = Forking.of(directory, config or [], cluster=cluster_id)
    result = forking.finish()
    plan = None
    if result is None:
        classes = resharding.classes_of(forking, actor or [])
        judged = forking.judge([str(each) for each in source or ()])
        if not original_goes_on:
            refuse_while_majority_answers(judged, forking.tls, seconds=timeout)
        with WorkProgress(output) as progress:
            plan = resharding.plan(forking, judged, classes, progress, groups=groups, spread=spread or [])
            result = resharding.run(forking, plan, progress)
    if output is Output.JSON:
        moved = [asdict(each) for each in plan.moved] if plan is not None else []
        added = plan.new_groups if plan is not None else []
        print_json({**new_cluster_fields(forking, result), "new_groups": added, "actors": moved})
        return
    if plan is not None:
        rows = [(each.name, each.instances, each.moved, len(each.before), len(each.after)) for each in plan.moved]
        print_table(["actor", "instances", "moved", "groups before", "groups now"], rows)
        print()
    print_new_cluster(forking, result, config or [], directory, output)
