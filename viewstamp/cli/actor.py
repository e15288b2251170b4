"""``viewstamp actor``: lists and calls replicated actors."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import (
    ClusterOption,
    DirOption,
    MaxStalenessOption,
    OutputOption,
    TimeoutOption,
    listed_ids,
    parse_ids,
    print_staleness,
)
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import ActorInfo

__all__ = ["app", "as_json", "parse_arguments"]

_COLUMNS = ("name", "class", "version", "instances", "digest")

app = typer.Typer(cls=CommandGroup, help="List, call and spread replicated actors.", no_args_is_help=True)


@app.command("list")
def list_actors(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the actors of the cluster, with the number of instances of each."""
    actors = find_cluster(directory, cluster).ask(lambda client: client.list_actors(timeout=timeout))
    if output is Output.JSON:
        print_json({"actors": [_described(each) for each in actors]})
    else:
        print_table(
            ["actor", "class", "version", "instances", "digest", "groups"],
            [(*map(_described(each).get, _COLUMNS), listed_ids(each.groups)) for each in actors],
            empty="no actors: add [actors] NAME = MODULE:CLASS to the settings of every node",
        )
        for each in actors:
            if each.missing:
                say(
                    f"{each.name}: the groups {listed_ids(each.missing)} did not answer, so their instances are not"
                    " counted"
                )


@app.command()
def spread(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An actor without instances; see: viewstamp actor list")],
    groups: Annotated[
        str | None,
        typer.Option("--groups", metavar="ID,...", help="The groups. [default: all that are established]"),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Spread the instances of an actor over groups by their keys, for ever, before it has any."""
    chosen = parse_ids(groups)
    found = find_cluster(directory, cluster).ask(
        lambda client: client.spread_actor(name, groups=chosen, timeout=timeout)
    )
    if output is Output.JSON:
        print_json({"name": found.name, "groups": list(found.groups), "slots": found.slots})
    else:
        print(f"actor {found.name} is spread over the groups {listed_ids(found.groups)}")


@app.command()
def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An actor; see: viewstamp actor list")],
    method: Annotated[str, typer.Argument(metavar="METHOD", help="One of its commands or queries.")],
    arguments: Annotated[
        str, typer.Argument(metavar="ARGS", help='JSON: a list ["A-17", 2], or an object {"sku": "A-17", "n": 2}.')
    ] = "[]",
    key: Annotated[str, typer.Option("--key", metavar="K", help="The key of the instance.")] = "",
    stale: Annotated[
        bool, typer.Option("--stale", help="Let any node answer a query at once, and print how old its state is.")
    ] = False,
    max_staleness: MaxStalenessOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Call a command or a query and print its result as JSON. Exits with 8 if the command raised an error."""
    positional, named = parse_arguments(arguments)
    if method.startswith("_"):
        raise typer.BadParameter(f"{method} is neither a command nor a query, because it begins with an underscore")

    async def ask(client: Client) -> dict[str, Any]:
        # The client is not given the actor's class, so it asks a node whether the method is a command or a query.
        called = getattr(client.actor(name, key=key, timeout=timeout, max_staleness=max_staleness), method)
        if not stale and max_staleness is None:
            return {"result": await called(*positional, **named)}
        answer = await called.stale(*positional, **named)
        if output is Output.TABLE:
            print_staleness(answer)
        age = answer.age_seconds if math.isfinite(answer.age_seconds) else None
        return {"result": answer.value, "applied_index": answer.applied_index, "age_seconds": age}

    answer = as_json(find_cluster(directory, cluster).ask(ask))
    print_json(answer if output is Output.JSON else answer["result"])


def parse_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional arguments of a JSON list, or the named ones of a JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not JSON: {error}") from error
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict):
        return [], found
    raise typer.BadParameter(f"{text} is neither a JSON list nor an object; write [{text}]")


def as_json(value: Any) -> Any:
    """Return the JSON form of an actor's result; a value without one becomes text."""
    match value:
        case dict():
            return {key if isinstance(key, str) else str(as_json(key)): as_json(each) for key, each in value.items()}
        case list() | tuple():
            return [as_json(each) for each in value]
        case set() | frozenset():
            return sorted(map(as_json, value), key=str)
        case bytes():
            return base64.b64encode(value).decode()
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _described(actor: ActorInfo) -> dict[str, object]:
    return {
        "name": actor.name,
        "class": actor.class_name,
        "version": actor.version,
        "instances": actor.instances,
        "digest": actor.digest,
        "groups": list(actor.groups),
        "missing_groups": list(actor.missing),
    }
