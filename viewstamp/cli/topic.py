"""``viewstamp topic``: make and list topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.options import (
    ClusterOption,
    DirOption,
    Output,
    OutputOption,
    TimeoutOption,
    print_json,
    print_table,
)
from viewstamp.cli.target import Target, run_async

if TYPE_CHECKING:
    from viewstamp.client.results import TopicInfo

__all__ = ["app"]

app = typer.Typer(help="Make and list topics.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="1 to 128 of A-Z a-z 0-9 . _ -")]


@app.command()
def create(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic. Fine if it exists."""
    target = Target.resolve(directory, cluster)

    async def ask() -> TopicInfo:
        async with target.connect() as client:
            return await client.create_topic(name, timeout=timeout)

    info = run_async(ask())
    if output is Output.JSON:
        print_json(_described(info))
    else:
        print(f"topic {info.name} is there")


@app.command("list")
def list_topics(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics, with their first and last positions."""
    target = Target.resolve(directory, cluster)

    async def ask() -> list[TopicInfo]:
        async with target.connect() as client:
            return await client.list_topics(timeout=timeout)

    infos = run_async(ask())
    if output is Output.JSON:
        print_json({"topics": [_described(info) for info in infos]})
    else:
        _print(infos)


@app.command()
def describe(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one topic."""
    target = Target.resolve(directory, cluster)

    async def ask() -> TopicInfo:
        async with target.connect() as client:
            return await client.describe_topic(name, timeout=timeout)

    info = run_async(ask())
    if output is Output.JSON:
        print_json(_described(info))
    else:
        _print([info])


def _described(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "first_position": info.first_position,
        "last_position": info.last_position,
        "bytes": info.bytes,
    }


def _print(infos: Sequence[TopicInfo]) -> None:
    print_table(["topic", "first", "last", "bytes"], [tuple(_described(info).values()) for info in infos])
