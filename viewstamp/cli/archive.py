"""``viewstamp archive``: moves old records of topics into a store of files that other programs can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from viewstamp.cli.archive_export import export
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, duration
from viewstamp.cli.topic_archive import described_archive, settings_table
from viewstamp.errors import CorruptionError
from viewstamp.local.find import find_cluster
from viewstamp.quantities import show_duration, show_size
from viewstamp.terminal.output import Output, print_json, print_table
from viewstamp.wire.archive_requests import ARCHIVE_DELAY

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import RunInfo, TopicInfo

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="Move old records of topics into Parquet files, which readers get them from later.",
    no_args_is_help=True,
)

_DELAY_MAX = 100 * 365 * 86_400.0

app.command()(export)

TopicOption = Annotated[str, typer.Argument(metavar="TOPIC", help="Only the runs of this topic.", show_default=False)]


@app.command()
def run(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="POSITION", min=1, help="Leave records from here on. [default: none]"),
    ] = None,
    delay: Annotated[
        float,
        typer.Option(
            "--delay",
            metavar="DURATION",
            parser=duration(maximum=_DELAY_MAX),
            help="The nodes' logs keep their copy of these records for this time of the log; then only the archive has"
            " them, for example 7d.",
        ),
    ] = ARCHIVE_DELAY,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the records of a topic into the archive. Safe to repeat: it goes on where the last one ended."""
    end = find_cluster(directory, cluster).ask(
        lambda client: client.archive_topic(topic, before, delay=delay, timeout=timeout)
    )
    if output is Output.JSON:
        print_json({"topic": topic, "archived_end": end})
    else:
        print(f"topic {topic} is archived up to position {end - 1}")


@app.command()
def log(
    topic: TopicOption = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the runs of archived records, and the archive settings of the topics."""

    async def ask(client: Client) -> tuple[list[RunInfo], list[TopicInfo]]:
        return await client.list_runs(timeout=timeout), await client.list_topics(timeout=timeout)

    runs, topics = find_cluster(directory, cluster).ask(ask)
    runs = [each for each in runs if topic in ("", each.topic)]
    topics = [each for each in topics if each.archive is not None and topic in ("", each.name)]
    if output is Output.JSON:
        settings = [{"name": each.name, **described_archive(each)} for each in topics]
        print_json({"runs": [_described(each) for each in runs], "topics": settings})
        return
    rows = [
        (each.id, each.topic, each.first_position, each.last_position, each.state, show_size(each.bytes), _delay(each))
        for each in runs
    ]
    heads = ["run", "topic", "first", "last", "state", "size", "delay"]
    print_table(heads, rows, empty="no runs: viewstamp archive run TOPIC")
    if topics:
        print_table(*settings_table(topics))


@app.command()
def check(
    topic: TopicOption = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the files of all committed runs, and compare them with the catalogue. Fails if one is damaged."""

    async def ask(client: Client) -> list[tuple[RunInfo, str]]:
        runs = await client.list_runs(timeout=timeout)
        chosen = [each for each in runs if each.state == "committed" and topic in ("", each.topic)]
        return [(each, await client.check_run(each.id, timeout=timeout)) for each in chosen]

    checked = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json({"runs": [{**_described(each), "damage": damage} for each, damage in checked]})
    else:
        rows = [(each.id, each.topic, "damaged" if damage else "intact") for each, damage in checked]
        print_table(["run", "topic", "file"], rows, empty="no committed runs")
    damaged = [damage for _, damage in checked if damage]
    if damaged:
        raise CorruptionError(
            f"{len(damaged)} of {len(checked)} runs are damaged: {damaged[0]}",
            remedy="keep the files, and put intact copies in their place; the log has the records",
        )


@app.command()
def orphans(
    remove: Annotated[bool, typer.Option("--remove", help="Remove them. They are never read.")] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the files of the archive that belong to no run, because a leader stopped while it wrote them."""
    found = find_cluster(directory, cluster).ask(lambda client: client.find_orphans(remove=remove, timeout=timeout))
    if output is Output.JSON:
        print_json({"orphans": [{"id": run, "bytes": size} for run, size in found.items()], "removed": remove})
        return
    state = "removed" if remove else "unused"
    print_table(["run", "size", "file"], [(run, show_size(size), state) for run, size in found.items()], empty="none")


def _delay(run: RunInfo) -> str:
    """Return the archive delay of a run as text; "-" = the run is not committed."""
    if run.state != "committed":
        return "-"
    return "for ever" if run.delay_seconds is None else show_duration(run.delay_seconds * 1000)


def _described(run: RunInfo) -> dict[str, object]:
    return {
        "id": run.id,
        "topic": run.topic,
        "first_position": run.first_position,
        "last_position": run.last_position,
        "state": run.state,
        "origin": run.origin,
        "bytes": run.bytes,
        "digest": run.digest,
        "first_time": run.first_time,
        "last_time": run.last_time,
        "delay_seconds": run.delay_seconds,
    }
