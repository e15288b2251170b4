"""``viewstamp leader``: shows the leader, and transfers leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.members import resolve
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.cli.status import STATUS_SECONDS
from viewstamp.doctor.status import nobody_leads, summary
from viewstamp.errors import WrongNodeError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.flags import program
from viewstamp.terminal.output import Output, print_json

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Show the leader, and transfer leadership.", no_args_is_help=True)


@app.command()
def show(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = STATUS_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the leader. Exits with 3 if there is none."""
    target = find_cluster(directory, cluster)
    found = summary(target.ask(lambda client: client.status(timeout=timeout)), target.names)
    leader = next((node for node in found["nodes"] if found["leader"] and node["id"] == found["leader"]), None)
    if leader is None:
        raise nobody_leads(found["nodes"], target.where, is_read=True)
    own = {each.node: address for address, each in (target.expected or {}).items()}.get(str(found["leader"]))
    if own not in (None, leader["address"]):
        raise WrongNodeError(
            f"the settings in this directory have {found['leader']} at {own}, but the leader {found['leader']} answers"
            f" at {leader['address']}, so it is a process of another directory",
            remedy=f"run {program()} doctor{target.where}; or name the cluster by --cluster {leader['address']}",
        )
    if output is Output.JSON:
        print_json({"leader": found["leader"], "term": found["term"], "address": leader["address"]})
    else:
        print(f"{found['leader']} leads term {found['term']}, at {leader['address']}")


@app.command()
def transfer(
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="The next leader. [default: the most complete log]")
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 10.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make another voter the leader, without waiting for an election timeout. No acknowledged record is lost."""

    async def ask(client: Client) -> str:
        members = await client.list_members(timeout=timeout)
        return await client.transfer_leadership(resolve(members, node) if node else None, timeout=timeout)

    leader = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json({"leader": leader})
    else:
        print(f"{leader} leads")
