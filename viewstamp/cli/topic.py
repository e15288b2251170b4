"""``viewstamp topic``: creates, lists and trims topics, and sets their retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, age, size
from viewstamp.local.find import find_cluster
from viewstamp.quantities import show_duration, show_size
from viewstamp.terminal.output import Output, print_json, print_table

if TYPE_CHECKING:
    from viewstamp.client.results import TopicInfo

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Create, list and trim topics.", no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="1 to 128 letters, digits, dots, underscores or hyphens.")
]
RetainBytesOption = Annotated[
    int | None,
    typer.Option(
        "--retain-bytes",
        metavar="SIZE",
        parser=size(),
        help="Delete the oldest records beyond this size, e.g. 64MiB; 0 = keep all.",
    ),
]
RetainAgeOption = Annotated[
    float | None,
    typer.Option(
        "--retain-age",
        metavar="AGE",
        parser=age,
        help="Delete records that are older, e.g. 7d or 12h; 0 = keep all.",
    ),
]


@app.command()
def create(
    name: NameArgument,
    retain_bytes: RetainBytesOption = None,
    retain_age: RetainAgeOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic; by default it keeps all records. Succeeds if it exists with the same retention."""
    info = find_cluster(directory, cluster).ask(
        lambda client: client.create_topic(
            name, retain_bytes=retain_bytes or 0, retain_seconds=retain_age or 0.0, timeout=timeout
        ),
    )
    if output is Output.JSON:
        print_json(_described(info))
    else:
        print(f"topic {info.name} is ready")


@app.command()
def configure(
    name: NameArgument,
    retain_bytes: RetainBytesOption = None,
    retain_age: RetainAgeOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the retention of a topic. An option that is not given stays as it is."""
    if retain_bytes is None and retain_age is None:
        raise typer.BadParameter("there is nothing to change: give --retain-bytes or --retain-age")
    info = find_cluster(directory, cluster).ask(
        lambda client: client.configure_topic(
            name, retain_bytes=retain_bytes, retain_seconds=retain_age, timeout=timeout
        ),
    )
    _print([info], output)


@app.command()
def trim(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    position: Annotated[int, typer.Argument(metavar="POSITION", min=1, help="The first position to keep.")],
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete all records of a topic before a position, permanently. Disk space is freed in whole segments."""
    info = find_cluster(directory, cluster).ask(lambda client: client.trim_topic(name, position, timeout=timeout))
    _print([info], output)


@app.command("list")
def list_topics(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics, with their first and last positions and their retention."""
    infos = find_cluster(directory, cluster).ask(lambda client: client.list_topics(timeout=timeout))
    if output is Output.JSON:
        print_json({"topics": [_described(info) for info in infos]})
    else:
        _print(infos, output)


@app.command()
def describe(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one topic: its first and last position, its size and its retention."""
    info = find_cluster(directory, cluster).ask(lambda client: client.describe_topic(name, timeout=timeout))
    _print([info], output)


def _described(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "first_position": info.first_position,
        "last_position": info.last_position,
        "bytes": info.bytes,
        "retain_bytes": info.retain_bytes,
        "retain_seconds": info.retain_seconds,
    }


def _print(infos: Sequence[TopicInfo], output: Output) -> None:
    """Print one topic as JSON, or topics as a table."""
    if output is Output.JSON:
        print_json(_described(infos[0]))
        return
    rows = [(i.name, i.first_position, i.last_position, i.bytes, _kept(i)) for i in infos]
    print_table(["topic", "first", "last", "bytes", "keeps"], rows, empty="no topics: viewstamp topic create NAME")


def _kept(info: TopicInfo) -> str:
    bounds = [show_size(info.retain_bytes)] if info.retain_bytes else []
    bounds += [show_duration(info.retain_seconds * 1000)] if info.retain_seconds else []
    return ", ".join(bounds) or "all"
