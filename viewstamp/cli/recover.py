"""``viewstamp recover``: begins a new cluster with the files that are left, when a majority of the members is lost."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.fork import ConfigsOption, IdOption, SourcesOption, print_new_cluster
from viewstamp.cli.options import LocalDirOption, OutputOption, TimeoutOption
from viewstamp.errors import ConfigError, RequestError
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program
from viewstamp.terminal.output import Output, say

if TYPE_CHECKING:
    from viewstamp.fork import PossibleLoss

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
    timeout: TimeoutOption = 3.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Begin a new cluster with the files of the members that are left. ACKNOWLEDGED RECORDS MAY BE LOST.

    For stopped nodes, after a majority of the members was lost for good. It prints the possible loss, and asks for the
    id of the old cluster. Nodes whose data directory holds data become the voters, with a new cluster id, so that lost
    members cannot come back and disagree. The old files stay in old-cluster-1/ of each data directory.
    """
    from viewstamp.fork import possible_loss
    from viewstamp.local.forking import Forking, refuse_while_any_answers

    forking = Forking.of(directory, config or [], cluster=cluster_id, survivors_only=True)
    result = forking.finish()
    if result is None:
        judged = forking.judge([str(each) for each in source or ()], survivors=True)
        if judged.is_majority:
            verdict = "no more can be found than they have" if judged.has_lost_power else "nothing is lost"
            raise RequestError(
                f"these files are of a majority of the members, so {verdict}; nothing was changed",
                remedy=f"start these nodes; or, for a new cluster with another id: {program()} cluster fork",
            )
        refuse_while_any_answers(judged, forking.tls, seconds=timeout)
        _report(possible_loss(judged))
        _confirm(judged.cluster, yes)
        result = forking.run(judged)
    print_new_cluster(forking, result, config or [], directory, output)
    if output is Output.TABLE:
        for node in forking.left_out:
            print(f"{node.settings.node.id} has no data; its settings were set aside")
        if len(forking.members) < _VOTERS_MIN:
            where = "" if config else dir_flag(directory, DEFAULT_DIRECTORY)
            print(f"Then add members, with empty data directories: {program()} members add{where}")


def _report(loss: PossibleLoss) -> None:
    """Print the possible loss to stderr, because the result on stdout may go into a pipe."""
    say(f"voters left: {', '.join(loss.survivors) or 'none'}; lost: {', '.join(loss.lost)}")
    for member, reason in loss.uncounted.items():
        say(f"{member} does not count: {reason}")
    written = datetime.fromtimestamp(loss.last_time / 1e6, UTC)
    if loss.acknowledged:
        say(
            "ACKNOWLEDGED RECORDS MAY BE LOST: the lost voters are a majority, and may have acknowledged records that"
            " no voter that is left has received."
        )
    else:
        say("No acknowledged record is lost: each one is on a voter that is left. Other records may be lost.")
    say(
        f"The log is kept up to index {loss.kept_end - 1}, written {written:%Y-%m-%d %H:%M:%S} UTC; up to index"
        f" {loss.known_end - 1} it is known to be committed."
    )
    if loss.calls:
        say(f"Actors: {loss.calls:,} calls are kept that may never have been acknowledged.")
    for topic in loss.topics:
        doubt = f"; positions {topic.known + 1} to {topic.kept} may never have been acknowledged" * (
            topic.kept > topic.known
        )
        lost = "may be lost, acknowledged ones too" if loss.acknowledged else "were not acknowledged"
        say(f"topic {topic.name}: kept up to position {topic.kept}{doubt}; records from {topic.kept + 1} on {lost}")


def _confirm(cluster: str, yes: str) -> None:
    """Return if the caller has given the id of the old cluster, by option or by typing it.

    Raises:
      ConfigError: it has not; nothing was changed.
    """
    if not yes and sys.stdin.isatty():
        say(f"Type the id of the old cluster, {cluster}, to accept this:")
        yes = sys.stdin.readline().strip()
    if yes != cluster:
        raise ConfigError(
            f"{yes!r} is not the id of the old cluster; nothing was changed"
            if yes
            else "the possible loss was not accepted; nothing was changed",
            remedy=f"add --yes-lose-data {cluster} to accept it",
        )
