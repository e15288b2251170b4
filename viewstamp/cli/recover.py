"""``viewstamp recover``: begins a new cluster with the files that are left, when a majority of the members is lost."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.confirmation import confirm
from viewstamp.cli.fork import ConfigsOption, IdOption, SourcesOption, new_cluster_fields, print_new_cluster
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
from viewstamp.errors import RequestError
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, print_json, say

if TYPE_CHECKING:
    from viewstamp.fork import ForkSource, GroupsRecovery, PossibleLoss

__all__ = ["recover"]

_VOTERS_MIN: Final = 3


def recover(
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    config: ConfigsOption = None,
    source: SourcesOption = None,
    cluster_id: IdOption = "",
    yes: Annotated[
        str,
        typer.Option("--yes-lose-data", metavar="CLUSTER_ID", help="The id of the old cluster, instead of typing it."),
    ] = "",
    all_nodes: Annotated[
        bool,
        typer.Option("--all-nodes", help="Nodes with an empty data directory become voters too, with a copy of all."),
    ] = False,
    timeout: TimeoutOption = 3.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Begin a new cluster with the files of the members that are left. ACKNOWLEDGED RECORDS MAY BE LOST.

    For stopped nodes, after a majority of the members was lost for good. It prints the possible loss, and asks for the
    id of the old cluster. Nodes whose data directory holds data become the voters, with a new cluster id, so that lost
    members cannot come back and disagree. Each group goes on with the best files that are left of it. The old files
    stay in old-cluster-1/ of each data directory.
    """
    from viewstamp.fork import plan_groups
    from viewstamp.host.disk import RealDisk
    from viewstamp.local.forking import Forking, refuse_while_any_answers

    forking = Forking.of(directory, config or [], cluster=cluster_id, survivors_only=not all_nodes)
    result, loss = forking.finish(), None
    if result is None:
        judged = forking.judge([str(each) for each in source or ()], survivors=True)
        if judged.has_majorities:
            verdict = "no more can be found than they have" if judged.has_lost_power else "nothing is lost"
            raise RequestError(
                f"these files are of a majority of the members{' of each group' if judged.groups else ''}, so"
                f" {verdict}; nothing was changed",
                remedy=f"start these nodes; or, for a new cluster with another id: {program()} cluster fork",
            )
        refuse_while_any_answers(judged, forking.tls, seconds=timeout)
        loss = _Loss(judged, plan_groups(RealDisk(), judged) if judged.groups else None)
        loss.report()
        confirm(
            yes,
            judged.cluster,
            what=f"the id of the old cluster, {judged.cluster}",
            option=f"--yes-lose-data {judged.cluster}",
        )
        result = forking.run(judged)
    if output is Output.JSON:
        print_json({**new_cluster_fields(forking, result), "loss": loss.fields() if loss is not None else None})
        return
    print_new_cluster(forking, result, config or [], directory, output)
    for node in forking.left_out:
        print(f"{node.settings.node.id} has no data; its settings were set aside")
    where = "" if config else dir_flag(directory, DEFAULT_DIRECTORY)
    if len(forking.members) < _VOTERS_MIN:
        print(f"Then add members, with empty data directories: {program()} members add{where}")
        if result.groups:
            print("The other groups stay on these voters, and get no further members")
    print(f"When it works, look for what is left to do: {program()} doctor{where}")


class _Loss:
    """What a recovery may lose, for people and as JSON."""

    def __init__(self, judged: ForkSource, groups: GroupsRecovery | None) -> None:
        from viewstamp.fork import possible_loss

        self._judged = judged
        self._groups = groups
        self._home = possible_loss(judged)
        self._losses = {
            int(each.placed.id): None if each.is_lost else possible_loss(each.source) for each in judged.groups
        }

    def report(self) -> None:
        """Print the possible loss to stderr, because the result on stdout may go into a pipe."""
        _report(self._home, "")
        for group, loss in self._losses.items():
            if loss is None:
                say(f"group {group}: NOTHING IS LEFT OF IT; all its records and instances are lost, and it begins anew")
            else:
                _report(loss, f"group {group}: ")
        for unknown in self._judged.left_behind:
            say(f"group {unknown} is not known to group 0 that is left; its records stay in the old files only")
        if self._groups is None:
            return
        plan = self._groups.plan
        for stream in plan.streams:
            where = f"topic {stream.topic}, stream {stream.number} in group {stream.group}"
            if stream.lost:
                say(f"{where}: {stream.lost:,} RECORDS THAT HAD A POSITION IN THE TOPIC ARE LOST")
            if stream.is_given_up:
                never = f"; {stream.unplaced:,} records that are left never get one" if stream.unplaced else ""
                say(f"{where} is given up behind its record {stream.kept_end - 1}, the last one with a position{never}")
        for hole in plan.lost_positions:
            say(f"topic {hole.topic}: positions {hole.first} to {hole.end - 1} of the topic are lost")
        for doubt in plan.doubtful:
            where = f"topic {doubt.topic}: positions {doubt.first} to {doubt.end - 1} of the topic"
            say(f"{where} may have belonged to other records")
        for batch in plan.dropped:
            then = "its driver can write it again" if batch.is_rewritable else "a later batch of the sink is kept"
            say(f"sink {batch.sink}: batch {batch.batch} was committed and lacks a part; it is dropped whole; {then}")
        for actor in self._groups.actors:
            say(f"actor {actor.actor}: the instances in the groups {', '.join(map(str, actor.groups))} are lost")
        for each, records in plan.aside.items():
            say(
                f"group {each.group}: group 0 that is left does not know the topic of stream {each.name}; its"
                f" {records:,} records stay in the old files only"
            )

    def fields(self) -> dict[str, object]:
        """Return the possible loss as JSON has it."""
        plan = self._groups.plan if self._groups is not None else None
        groups = [
            {"group": group, "is_lost": loss is None, **(_fields(loss) if loss is not None else {})}
            for group, loss in self._losses.items()
        ]
        return {
            **_fields(self._home),
            "groups": groups,
            "streams": [
                {**asdict(each), "lost": each.lost, "unplaced": each.unplaced}
                for each in (plan.streams if plan else ())
            ],
            "lost_positions": [asdict(each) for each in (plan.lost_positions if plan else ())],
            "doubtful_positions": [asdict(each) for each in (plan.doubtful if plan else ())],
            "dropped_batches": [asdict(each) for each in (plan.dropped if plan else ())],
            "actors": [asdict(each) for each in (self._groups.actors if self._groups is not None else ())],
            "streams_set_aside": [
                {"group": each.group, "stream": each.name, "records": records}
                for each, records in (plan.aside if plan else {}).items()
            ],
            "groups_left_behind": self._judged.left_behind,
        }


def _fields(loss: PossibleLoss) -> dict[str, object]:
    """Return the possible loss of one log; ends are the last indices."""
    return {
        "survivors": loss.survivors,
        "lost": loss.lost,
        "not_counted": loss.uncounted,
        "acknowledged_may_be_lost": loss.acknowledged,
        "known_index": loss.known_end - 1,
        "kept_index": loss.kept_end - 1,
        "calls_in_doubt": loss.calls,
        "topics": [asdict(each) for each in loss.topics],
    }


def _report(loss: PossibleLoss, group: str) -> None:
    """Print the possible loss of one log; ``group`` stands before each line."""
    say(f"{group}voters left: {', '.join(loss.survivors) or 'none'}; lost: {', '.join(loss.lost) or 'none'}")
    for member, reason in loss.uncounted.items():
        say(f"{group}{member} does not count: {reason}")
    written = datetime.fromtimestamp(loss.last_time / 1e6, UTC)
    if loss.acknowledged:
        say(
            f"{group}ACKNOWLEDGED RECORDS MAY BE LOST: the lost voters are a majority, and may have acknowledged"
            " records that no voter that is left has received."
        )
    else:
        say(f"{group}No acknowledged record is lost: each one is on a voter that is left. Other records may be lost.")
    say(
        f"{group}The log is kept up to index {loss.kept_end - 1}, written {written:%Y-%m-%d %H:%M:%S} UTC; up to index"
        f" {loss.known_end - 1} it is known to be committed."
    )
    if loss.calls:
        say(f"{group}Actors: {loss.calls:,} calls are kept that may never have been acknowledged.")
    what = "stream" if group else "topic"
    for topic in loss.topics:
        doubt = f"; positions {topic.known + 1} to {topic.kept} may never have been acknowledged" * (
            topic.kept > topic.known
        )
        lost = "may be lost, acknowledged ones too" if loss.acknowledged else "were not acknowledged"
        say(
            f"{group}{what} {topic.name}: kept up to position {topic.kept}{doubt}; records from {topic.kept + 1} on"
            f" {lost}"
        )
