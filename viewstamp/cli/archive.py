"""``viewstamp archive``: moves old records of topics into a store of files that other programs can read."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from viewstamp.cli.archive_export import export
from viewstamp.cli.archive_wait import archived
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, duration
from viewstamp.cli.topic_archive import (
    archivist_lines,
    archivist_of,
    described_archive,
    described_settings,
    keyed_table,
    settings_table,
)
from viewstamp.errors import CorruptionError, RequestError
from viewstamp.local.find import find_cluster
from viewstamp.quantities import rounded_size, show_duration
from viewstamp.terminal.output import Output, fitted, print_json, print_table
from viewstamp.terminal.show import Show

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import SpreadTopicInfo, TopicInfo
    from viewstamp.client.runs import KeyRunInfo, RunInfo
    from viewstamp.client.stream_archives import StreamRunInfo

__all__ = ["app"]

app = typer.Typer(
    cls=CommandGroup,
    help="Move old records of topics into Parquet files, which readers get them from later.",
    no_args_is_help=True,
)

AnyRunT = TypeVar("AnyRunT", "RunInfo", "KeyRunInfo")

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
        float | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            parser=duration(maximum=_DELAY_MAX),
            help="The nodes' logs keep their copy of these records for this time of the log; then only the archive has"
            " them, for example 7d. [default: the archive delay of the topic]",
        ),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write the records of a topic into the archive. Safe to repeat: it goes on where the last one ended."""
    show = Show(output)
    try:
        end = find_cluster(directory, cluster).ask(
            lambda client: archived(client, topic, before, delay, timeout, show.phase)
        )
    finally:
        show.close()
    if isinstance(end, dict):
        if output is Output.JSON:
            print_json({"topic": topic, "archived_ends": {str(stream): each for stream, each in end.items()}})
            return
        for stream, each in end.items():
            print(f"stream {stream} of topic {topic} is archived up to its position {each - 1:,}")
    elif output is Output.JSON:
        print_json({"topic": topic, "archived_end": end})
    else:
        print(f"topic {topic} is archived up to position {end - 1:,}")


@app.command()
def log(
    topic: TopicOption = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the runs of archived records and of keys, and the archive settings and views of the topics."""

    async def ask(
        client: Client,
    ) -> tuple[
        list[RunInfo], list[KeyRunInfo], list[StreamRunInfo], list[TopicInfo], list[SpreadTopicInfo], dict[str, Any]
    ]:
        topics = [each for each in await client.list_topics(timeout=timeout) if topic in ("", each.name)]
        is_keyed = any(each.keyed is not None for each in topics)
        archivist = await archivist_of(client, timeout) if is_keyed and output is not Output.JSON else {}
        spread = await _spread_topics(client, topic, timeout)
        streams = [run for each in spread for run in await client.list_stream_runs(each.name, timeout=timeout)]
        return *await _list(client, topic, timeout), streams, topics, spread, archivist

    runs, key_runs, stream_runs, found, spread, archivist = find_cluster(directory, cluster).ask(ask)
    topics = [each for each in found if each.archive is not None]
    keyed = [each for each in found if each.keyed is not None]
    if output is Output.JSON:
        settings = [{"name": each.name, **described_archive(each)} for each in topics]
        settings += [{"name": each.name, **described_settings(each.archive)} for each in spread if each.archive]
        views = [{"name": each.name, **(each.keyed or {})} for each in keyed]
        described = [_described_keys(each) for each in key_runs]
        print_json(
            {
                "runs": [_described(each) for each in runs],
                "topics": settings,
                "key_runs": described,
                "keyed_topics": views,
                "stream_runs": [_described_stream(each) for each in stream_runs],
            }
        )
        return
    rows = [
        (
            each.id,
            each.topic,
            each.first_position,
            each.last_position,
            each.state,
            rounded_size(each.bytes),
            _delay(each),
        )
        for each in runs
    ]
    heads = ["run", "topic", "first", "last", "state", "size", "delay"]
    if rows or not (key_runs or stream_runs):
        print_table(heads, rows, empty="no runs: viewstamp archive run TOPIC")
    if stream_runs:
        heads = ["run of a stream", "topic", "stream", "group", "first", "last", "state", "size", "delay"]
        print_table(heads, [_stream_row(each) for each in stream_runs])
    configured: list[TopicInfo | SpreadTopicInfo] = [*topics, *(each for each in spread if each.archive is not None)]
    if configured:
        print_table(*settings_table(configured))
    if key_runs:
        heads = ["run of keys", "topic", "first", "last", "state", "size", "rows", "made by"]
        print_table(heads, [_key_row(each) for each in key_runs])
    if keyed:
        print_table(*keyed_table(keyed))
        for line in archivist_lines(keyed, archivist, round(time.time() * 1e6)):
            print(fitted(line, sys.stdout, indent="  "))


@app.command()
def check(
    topic: TopicOption = "",
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the files of all committed runs, and compare them with the catalogue. Fails if one is damaged.

    A run that a merge of keys replaced meanwhile, or whose records were deleted meanwhile, is left out.
    """

    async def checked_of(client: Client, runs: list[AnyRunT]) -> list[tuple[AnyRunT, str]]:
        """Return the damage of each run that is committed, "" = it is intact."""
        checked = []
        for run in runs:
            if run.state == "committed":
                try:
                    checked.append((run, await client.check_run(run.id, timeout=timeout)))
                except RequestError:
                    now = [each for kind in await _list(client, topic, timeout) for each in kind]
                    if any(each.id == run.id and each.state == "committed" for each in now):
                        raise
        return checked

    async def checked_streams(client: Client, names: list[str]) -> list[tuple[StreamRunInfo, str]]:
        checked = []
        for name in names:
            for run in await client.list_stream_runs(name, timeout=timeout):
                if run.state == "committed":
                    try:
                        checked.append((run, await client.check_stream_run(run.group, run.id, timeout=timeout)))
                    except RequestError:
                        now = await client.list_stream_runs(name, timeout=timeout)
                        if any((each.group, each.id, each.state) == (run.group, run.id, run.state) for each in now):
                            raise
        return checked

    async def ask(
        client: Client,
    ) -> tuple[list[tuple[RunInfo, str]], list[tuple[KeyRunInfo, str]], list[tuple[StreamRunInfo, str]]]:
        spread = [each.name for each in await _spread_topics(client, topic, timeout)]
        runs, key_runs = await _list(client, topic, timeout)
        return await checked_of(client, runs), await checked_of(client, key_runs), await checked_streams(client, spread)

    checked, checked_keys, checked_runs = find_cluster(directory, cluster).ask(ask)
    files = [(each.id, each.topic, damage) for each, damage in checked]
    files += [(each.id, each.topic, damage) for each, damage in checked_keys]
    files += [(each.id, f"{each.topic}, stream {each.stream}", damage) for each, damage in checked_runs]
    if output is Output.JSON:
        shown = {
            "runs": [{**_described(each), "damage": damage} for each, damage in checked],
            "key_runs": [{**_described_keys(each), "damage": damage} for each, damage in checked_keys],
            "stream_runs": [{**_described_stream(each), "damage": damage} for each, damage in checked_runs],
        }
        print_json(shown)
    else:
        rows = [(run, name, "damaged" if damage else "intact") for run, name, damage in files]
        print_table(["run", "topic", "file"], rows, empty="no committed runs")
    damaged = [damage for _, _, damage in files if damage]
    if damaged:
        again = "or build the view by key again: viewstamp topic configure TOPIC --no-keyed, then --keyed"
        is_view = any(damage for _, damage in checked_keys)
        other = again if is_view else "the logs have the records only until the archive delay of the run is over"
        raise CorruptionError(
            f"{len(damaged)} of {len(files)} runs are damaged: {damaged[0]}",
            remedy=f"keep the files, and put intact copies in their place; {other}",
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

    async def ask(client: Client) -> list[tuple[int, int, int]]:
        """Return the group, the id and the size of each."""
        found = [(0, *each) for each in (await client.find_orphans(remove=remove, timeout=timeout)).items()]
        groups = {group for topic in await _spread_topics(client, "", timeout) for group in topic.groups}
        for group in sorted(groups):
            of_group = await client.find_stream_orphans(group, remove=remove, timeout=timeout)
            found += [(group, *each) for each in of_group.items()]
        return found

    found = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        described = [{"id": run, "bytes": size, **({"group": group} if group else {})} for group, run, size in found]
        print_json({"orphans": described, "removed": remove})
        return
    state = "removed" if remove else "unused"
    rows = [(f"{run} of group {group}" if group else run, rounded_size(size), state) for group, run, size in found]
    print_table(["run", "size", "file"], rows, empty="none")


async def _list(client: Client, topic: str, timeout: float) -> tuple[list[RunInfo], list[KeyRunInfo]]:
    """Return the runs of a topic, or of all; of archived records, and of keys."""
    runs = [each for each in await client.list_runs(timeout=timeout) if topic in ("", each.topic)]
    return runs, [each for each in await client.list_key_runs(timeout=timeout) if topic in ("", each.topic)]


async def _spread_topics(client: Client, topic: str, timeout: float) -> list[SpreadTopicInfo]:
    """Return the topics with streams: only ``topic``, nothing if it has none, or all for "".

    A node of a release without them has none.

    Raises:
      UnknownTopicError: there is no such topic. Without this, a check of a misspelt name would find nothing damaged.
    """
    spread: list[SpreadTopicInfo] = []
    with suppress(RequestError):
        spread = await client.list_spread_topics(timeout=timeout)
    named = [each for each in spread if topic in ("", each.name)]
    if topic and not named:
        await client.describe_topic(topic, timeout=timeout)
    return named


def _stream_row(run: StreamRunInfo) -> tuple[object, ...]:
    return (
        *(run.id, run.topic, run.stream, run.group, run.first_position, run.last_position, run.state),
        *(rounded_size(run.bytes), _delay(run)),
    )


def _described_stream(run: StreamRunInfo) -> dict[str, object]:
    order = {"first_global_position": run.first_global, "last_global_position": run.last_global}
    return {**_described(run), "stream": run.stream, "group": run.group, **order}


def _key_row(run: KeyRunInfo) -> tuple[object, ...]:
    made_by = "merge" if run.is_merge else "dump"
    return (
        run.id,
        run.topic,
        run.first_position,
        run.last_position,
        run.state,
        rounded_size(run.bytes),
        run.records,
        made_by,
    )


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


def _described_keys(run: KeyRunInfo) -> dict[str, object]:
    return {
        "id": run.id,
        "topic": run.topic,
        "first_position": run.first_position,
        "last_position": run.last_position,
        "state": run.state,
        "made_by": "merge" if run.is_merge else "dump",
        "records": run.records,
        "bytes": run.bytes,
        "digest": run.digest,
    }
