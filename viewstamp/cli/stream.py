"""``viewstamp stream``: operates the streams of topics, and the groups that have them."""

from __future__ import annotations

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.errors import UnavailableError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup, help="Operate the streams of topics, and the groups that have them.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Make the only command of this group a command with a name."""


@app.command()
def balance(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Spread the leaders of the groups evenly over the nodes. Safe to repeat; exits with 3 if a group cannot move.

    A leader moves without an election timeout, and no acknowledged record is lost. The leader of group 0 counts, and
    stays.
    """
    leaders = find_cluster(directory, cluster).ask(lambda client: client.balance_leaders(timeout=timeout))
    if output is Output.JSON:
        rows = [
            {"group": each.group, "before": each.before, "leader": each.leader, "reason": each.reason}
            for each in leaders
        ]
        print_json({"groups": rows})
    else:
        print_table(
            ["group", "leader", "before"],
            [(str(each.group), each.leader or "none", each.before or "none") for each in leaders],
        )
        for each in leaders:
            if each.reason:
                print(f"group {each.group} is not moved: {each.reason}")
        moved = sum(each.is_moved for each in leaders)
        print(f"{moved} of {len(leaders)} leaders moved")
    if any(each.reason for each in leaders):
        raise typer.Exit(UnavailableError.exit_code)
