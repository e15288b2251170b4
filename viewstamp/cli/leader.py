"""``viewstamp leader``: who leads, and how to have another one lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.members import resolve
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.cli.status import STATUS_SECONDS
from viewstamp.doctor.status import nobody_leads, summary
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="See who leads, and hand the leadership over.", no_args_is_help=True)


@app.command()
def show(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = STATUS_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who leads. Exit 3 where nobody does."""
    target = find_cluster(directory, cluster)
    told = summary(target.ask(lambda client: client.status(timeout=timeout)), target.names)
    leader = next((node for node in told["nodes"] if told["leader"] and node["id"] == told["leader"]), None)
    if leader is None:
        raise nobody_leads(told["nodes"], target.where)
    if output is Output.JSON:
        print_json({"leader": told["leader"], "term": told["term"], "address": leader["address"]})
    else:
        print(f"{told['leader']} leads term {told['term']}, at {leader['address']}")


@app.command()
def transfer(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="To whom. [default: who is closest]")] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 10.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Have the leader hand over to another voter, without an election timeout. Nothing is lost or refused for long."""

    async def ask(client: Client) -> str:
        members = await client.list_members(timeout=timeout)
        return await client.transfer_leadership(resolve(members, node) if node else None, timeout=timeout)

    leader = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json({"leader": leader})
    else:
        print(f"{leader} leads")
