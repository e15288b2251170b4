"""``viewstamp topic``: creates, lists and trims topics, and sets their retention and their archive."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.group import CommandGroup
from viewstamp.cli.groups import group_ids
from viewstamp.cli.options import (
    ClusterOption,
    DirOption,
    OutputOption,
    TimeoutOption,
    age,
    listed_ids,
    size,
)
from viewstamp.cli.topic_archive import (
    ARCHIVED_HEADS,
    archived_row,
    archived_table,
    archivist_lines,
    archivist_of,
    described_archive,
    described_settings,
    keyed_table,
    why_no_archive,
)
from viewstamp.cli.topic_schema import read_schema, schema_table
from viewstamp.errors import RequestError, UnavailableError, UnknownTopicError
from viewstamp.local.find import find_cluster
from viewstamp.quantities import show_duration, show_size
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import SpreadTopicInfo, TopicInfo
    from viewstamp.ids import GroupId
    from viewstamp.local.target import ClusterTarget

__all__ = ["app", "describe_any", "ordered_line"]

LOOK_SECONDS: Final = 0.2

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
ArchiveOption = Annotated[
    bool | None,
    typer.Option(
        "--archive/--no-archive",
        help="Let the leader move old records into the archive by itself. --retain-bytes and --retain-age then say how"
        " much the logs of the nodes keep too.",
        show_default=False,
    ),
]
ArchiveAfterOption = Annotated[
    float | None,
    typer.Option("--archive-after", metavar="AGE", parser=age, help="Archive records that are older, e.g. 1d."),
]
ArchiveDelayOption = Annotated[
    float | None,
    typer.Option(
        "--archive-delay",
        metavar="AGE",
        parser=age,
        help="The logs keep their copy of archived records for this time too. [default: 1d]",
    ),
]
DeleteAfterOption = Annotated[
    float | None,
    typer.Option(
        "--delete-after", metavar="AGE", parser=age, help="Delete archived records that are older, e.g. 90d; 0 = never."
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA|@FILE",
        help="The fields of its rows, e.g. 'id: int64, name: string?'; ? = may be null.",
        show_default=False,
    ),
]

KeyedOption = Annotated[
    bool | None,
    typer.Option(
        "--keyed/--no-keyed",
        help="Keep the last record of each key in the archive, for `viewstamp get` and `viewstamp scan`.",
        show_default=False,
    ),
]


@app.command()
def create(
    name: NameArgument,
    retain_bytes: RetainBytesOption = None,
    retain_age: RetainAgeOption = None,
    archive: ArchiveOption = None,
    archive_after: ArchiveAfterOption = None,
    archive_delay: ArchiveDelayOption = None,
    delete_after: DeleteAfterOption = None,
    schema: SchemaOption = None,
    keyed: KeyedOption = None,
    streams: Annotated[
        int | None,
        typer.Option("--streams", metavar="N", min=1, max=256, help="Spread the records over N streams of groups."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", metavar="ID,...", help="Groups of the streams, by id or name. [default: those with the fewest]"
        ),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic; by default it keeps all records. Succeeds if it exists with the same settings.

    With --streams it returns when each stream has been created in its group. The topic cannot be removed then.
    """
    archiving = _archiving(archive, archive_after, archive_delay, delete_after)
    if streams is not None:
        if keyed:
            raise typer.BadParameter("a topic with --streams cannot be keyed yet; leave --keyed out")
        text = None if schema is None else read_schema(schema)
        settings = {"retain_bytes": retain_bytes or 0, "retain_seconds": retain_age or 0.0}
        target = find_cluster(directory, cluster)
        topic = target.ask(
            lambda client: _create_spread(client, name, streams, groups, settings, archiving, text, timeout)
        )
        if output is Output.JSON:
            print_json(_described_spread(topic))
        else:
            number = len(topic.kept_streams)
            print(f"topic {topic.name} is ready, with {number} streams in the groups {listed_ids(_groups_of(topic))}")
        if archive:
            _say_why_no_archive(target, timeout)
        return
    if groups is not None:
        raise typer.BadParameter("--groups needs --streams, because a topic without streams is in group 0")
    text = None if schema is None else read_schema(schema)

    async def make(client: Client) -> TopicInfo:
        info = await client.create_topic(
            name, retain_bytes=retain_bytes or 0, retain_seconds=retain_age or 0.0, timeout=timeout, **archiving
        )
        if text is not None:
            await client.set_schema(name, text, timeout=timeout)
            info = await client.describe_topic(name, timeout=timeout)
        if keyed is None:
            return info
        try:
            return await client.configure_keyed(name, keyed, timeout=timeout)
        except RequestError as error:
            error.message = f"topic {name!r} exists now, and is not keyed: {error.message}"
            error.remedy = f"{error.remedy}; then give the same command again"
            raise

    target = find_cluster(directory, cluster)
    info = target.ask(make)
    if output is Output.JSON:
        print_json(_described(info))
    else:
        print(f"topic {info.name} is ready")
    if archive:
        _say_why_no_archive(target, timeout)


@app.command()
def configure(
    name: NameArgument,
    retain_bytes: RetainBytesOption = None,
    retain_age: RetainAgeOption = None,
    archive: ArchiveOption = None,
    archive_after: ArchiveAfterOption = None,
    archive_delay: ArchiveDelayOption = None,
    delete_after: DeleteAfterOption = None,
    schema: SchemaOption = None,
    keyed: KeyedOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the retention, the archive and the schema of a topic. An option that is not given stays as it is.

    Of a topic with streams the retention is that of each stream. The command returns when all of them have it.
    """
    archiving = _archiving(archive, archive_after, archive_delay, delete_after)
    has_settings = retain_bytes is not None or retain_age is not None or bool(archiving)
    if not has_settings and schema is None and keyed is None:
        raise typer.BadParameter(
            "there is nothing to change: give --retain-bytes, --retain-age, --archive, --schema or --keyed"
        )
    text = None if schema is None else read_schema(schema)
    from viewstamp.client.results import SpreadTopicInfo

    async def change(client: Client) -> tuple[TopicInfo | SpreadTopicInfo, list[TopicInfo | None]]:
        info: TopicInfo | SpreadTopicInfo | None = None
        streams: list[TopicInfo | None] = []
        if text is not None:  # First, because it is the one that may be refused for what the topic has.
            info = await client.set_schema(name, text, timeout=timeout)
            if isinstance(info, SpreadTopicInfo) and not has_settings:
                info, streams = await describe_any(client, name, timeout)
        if has_settings:
            info, streams = await _configure(client, name, retain_bytes, retain_age, archiving, timeout)
        if keyed is not None:
            info = await client.configure_keyed(name, keyed, timeout=timeout)
        assert info is not None, "there is something to change"
        return info, streams

    target = find_cluster(directory, cluster)
    info, streams = target.ask(change)
    _print_described(info, streams, output)
    if archive:
        _say_why_no_archive(target, timeout)


@app.command()
def trim(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    position: Annotated[
        int | None, typer.Argument(metavar="POSITION", min=1, help="The first position to keep.", show_default=False)
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", metavar="POSITION", min=1, help="The same as the argument POSITION.")
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete all records of a topic before a position, permanently. Disk space is freed in whole segments.

    Of a topic with streams it is a global position. The leaders of the groups then trim their streams.
    """
    given = [each for each in (position, before) if each is not None]
    if len(given) != 1:
        raise typer.BadParameter("give one first position to keep, as POSITION or by --before")

    async def trim(client: Client) -> TopicInfo | SpreadTopicInfo:
        try:
            return await client.trim_topic(name, given[0], timeout=timeout)
        except UnknownTopicError as error:
            try:
                return await client.trim_spread_topic(name, given[0], timeout=timeout)
            except UnknownTopicError:
                raise error from None

    info = find_cluster(directory, cluster).ask(trim)
    from viewstamp.client.results import SpreadTopicInfo

    if not isinstance(info, SpreadTopicInfo):
        _print([info], output)
    elif output is Output.JSON:
        print_json(_described_spread(info))
    else:
        print(f"topic {info.name} is trimmed to global position {info.first_position}")


@app.command("list")
def list_topics(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics, with their first and last positions and their retention, then those with streams."""

    async def ask(client: Client) -> tuple[list[TopicInfo], list[SpreadTopicInfo]]:
        topics = await client.list_topics(timeout=timeout)
        with suppress(RequestError):  # A node of a release without spread topics has none.
            return topics, await client.list_spread_topics(timeout=timeout)
        return topics, []

    infos, spread = find_cluster(directory, cluster).ask(ask)
    if output is Output.JSON:
        print_json(
            {
                "topics": [_described(info) for info in infos],
                "spread_topics": [_described_spread(topic) for topic in spread],
            }
        )
        return
    if infos or not spread:
        _print(infos, output)
    if spread:
        if infos:
            print()
        rows = [(each.name, len(each.kept_streams), listed_ids(_groups_of(each)), _kept(each)) for each in spread]
        print_table(["topic", "streams", "groups", "keeps"], rows)


@app.command()
def describe(
    name: NameArgument,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one topic: its positions, size, retention and archive; of one with streams these of each."""
    info, streams = find_cluster(directory, cluster).ask(lambda client: describe_any(client, name, timeout))
    archivist: dict[str, Any] = {}
    if getattr(info, "archive", None) is not None or getattr(info, "keyed", None) is not None:
        archivist = find_cluster(directory, cluster).ask(lambda client: archivist_of(client, timeout))
    _print_described(info, streams, output, archivist)


def _say_why_no_archive(target: ClusterTarget, timeout: float) -> None:
    """Say that the leader cannot archive, because the settings of a topic are accepted all the same."""
    if why := target.ask(lambda client: why_no_archive(client, timeout)):
        say(why)


def _print_described(
    info: TopicInfo | SpreadTopicInfo,
    streams: Sequence[TopicInfo | None],
    output: Output,
    archivist: dict[str, Any] | None = None,
) -> None:
    """Print one topic with its archive, or a spread topic with its streams."""
    from viewstamp.client.results import SpreadTopicInfo

    if not isinstance(info, SpreadTopicInfo):
        if output is Output.JSON:
            print_json({**_described(info), **({"archivist": archivist} if archivist else {})})
            return
        _print([info], output)
        if info.schema:
            print_table(*schema_table(info.schema))
        if info.keyed is not None:
            print_table(*keyed_table([info]))
        now_us = round(time.time() * 1e6)
        if info.archived is not None and archivist is not None:
            print_table(*archived_table(info, now_us))
        if archivist is not None and (info.archived is not None or info.keyed is not None):
            for line in archivist_lines([info], archivist, now_us):
                print(fitted(line, sys.stdout, indent="  "))
    elif output is Output.JSON:
        heirs = {each.stream: each.into for each in info.closed}
        silent = _silent(info, streams)
        positions: list[dict[str, Any]] = []
        for number, stream in enumerate(streams, 1):
            place = {"stream": number, "group": info.group_of(number), "phase": info.phase_of(number)}
            place |= {"into": heirs[number]} if number in heirs else {}
            if number in silent:
                positions.append({**place, "no_answer": True})
            elif stream is None:
                lost = {"lost_at": lost_at} if (lost_at := info.lost_at(number)) else {}
                gone = {"gone_at": gone_at} if (gone_at := info.gone_at(number)) else {}
                positions.append({**place, "last_position": info.closed_at(number) - 1, **lost, **gone})
            else:
                positions.append({**place, **_described(stream), "follows": _follows(stream, info)})
        print_json(
            {
                **_described_spread(info),
                "next_position": info.next_position,
                "is_order_current": not info.age_seconds,
                "streams": [
                    each if "no_answer" in each else {**each, "waiting": _waiting(info, each)} for each in positions
                ],
            }
        )
    else:
        rows: list[tuple[object, ...]] = []
        silent = _silent(info, streams)
        waiting_all = 0
        for number, i in enumerate(streams, 1):
            where = str(number), str(info.group_of(number))
            if number in silent:
                rows.append((*where, "", "", "", "", "no answer"))
                continue
            if i is None:
                rows.append((*where, "", info.closed_at(number) - 1, "", "", info.phase_of(number)))
                continue
            waiting = _waiting(info, {"stream": number, "last_position": i.last_position})
            waiting_all += waiting
            rows.append((*where, i.first_position, i.last_position, waiting, i.bytes, _kept(i)))
        print_table(["stream", "group", "first", "last", "waiting", "bytes", "keeps"], rows)
        archived = [(number, *archived_row(each)) for number, each in enumerate(streams, 1) if each and each.archived]
        if archived:
            print_table(["stream", *ARCHIVED_HEADS], archived)
        if info.schema:
            print_table(*schema_table(info.schema))
        print(ordered_line(info, waiting_all))
        if info.age_seconds:
            say("the order stands still: group 0 has no leader with a majority. See why: viewstamp doctor")
        for group in sorted({info.group_of(number) for number in silent}):
            say(f"group {group} does not answer: it has no leader with a majority. See why: viewstamp doctor")
        for ended in info.closed:
            print(f"stream {ended.stream} is {ended.phase}: its keys go to stream {ended.into}")
            if ended.lost_at > info.first_position and not ended.gone_at:
                print(f"readers below position {ended.lost_at} of {info.name} may wait for it: topic trim passes it")
        for number, each in enumerate(streams, 1):
            if each is not None and not _follows(each, info):
                print(f"stream {number} does not keep {_kept(info)} yet: the leader of its group has to configure it")


def ordered_line(info: SpreadTopicInfo, waiting: int) -> str:
    """Return which kept records have a position in a topic; ``waiting``: the number of those that have none yet."""
    if info.next_position > info.first_position:
        line = f"records {info.first_position:,} to {info.next_position - 1:,} of {info.name} have a position"
    elif info.next_position > 1:
        line = f"all records of {info.name} up to position {info.next_position - 1:,} were deleted"
    else:
        line = f"no record of {info.name} has a position"
    return f"{line}; waiting ones get theirs soon" if waiting else line


def _waiting(info: SpreadTopicInfo, stream: Mapping[str, Any]) -> int:
    """Return the number of records of a stream that are durable and have no position in the topic yet."""
    ends = info.ordered_ends
    return max(0, stream["last_position"] + 1 - ends[stream["stream"] - 1]) if ends else 0


async def _create_spread(
    client: Client,
    name: str,
    streams: int,
    groups: str | None,
    settings: dict[str, Any],
    archiving: dict[str, Any],
    schema: str | None,
    timeout: float,
) -> SpreadTopicInfo:
    """Create a spread topic, and wait until each stream exists. Raises UnavailableError if one does not in time."""
    deadline = time.monotonic() + timeout
    named = await group_ids(client, groups, timeout)
    topic = await client.create_spread_topic(name, streams, groups=named, timeout=timeout, **settings)
    if archiving:
        topic = await client.configure_spread_topic(name, timeout=timeout, **archiving)
    if schema is not None:
        await client.set_schema(name, schema, timeout=timeout)
        topic = await client.describe_spread_topic(name, timeout=timeout)
    for stream in topic.kept_streams:
        try:
            await client.describe_stream(name, stream, timeout=max(LOOK_SECONDS, deadline - time.monotonic()))
        except UnavailableError as error:
            raise UnavailableError(
                f"topic {name!r} is created, and its stream {stream} in group {topic.group_of(stream)} is not ready"
                f" yet: {error.message}",
                remedy="give the same command again: it waits again",
            ) from error
    return topic


async def _configure(
    client: Client,
    name: str,
    retain_bytes: int | None,
    retain_seconds: float | None,
    archiving: dict[str, Any],
    timeout: float,
) -> tuple[TopicInfo | SpreadTopicInfo, list[TopicInfo | None]]:
    """Change the retention of a topic; of a spread topic wait until each stream has it. Raises UnavailableError."""
    settings: dict[str, Any] = {"retain_bytes": retain_bytes, "retain_seconds": retain_seconds, "timeout": timeout}
    deadline = time.monotonic() + timeout
    try:
        return await client.configure_topic(name, **settings, **archiving), []
    except UnknownTopicError as error:
        try:
            topic = await client.configure_spread_topic(name, **settings, **archiving)
        except UnknownTopicError:
            raise error from None
    for stream in sorted(set(topic.kept_streams) - topic.lost_streams):
        while True:
            left = max(LOOK_SECONDS, deadline - time.monotonic())
            info = await client.describe_stream(name, stream, timeout=left)
            if _follows(info, topic):
                break
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topic {name!r} is configured, and its stream {stream} in group {topic.group_of(stream)} does not"
                    f" have the settings yet",
                    remedy="give the same command again: it waits again",
                )
            await asyncio.sleep(LOOK_SECONDS)
    return await describe_any(client, name, timeout)


def _follows(stream: TopicInfo, topic: SpreadTopicInfo) -> bool:
    """Return whether a stream has the retention and the archive settings of its topic."""
    found = stream.retain_bytes, stream.retain_seconds, stream.archive
    return found == (topic.retain_bytes, topic.retain_seconds, topic.archive)


async def describe_any(
    client: Client, name: str, timeout: float
) -> tuple[TopicInfo | SpreadTopicInfo, list[TopicInfo | None]]:
    """Return a topic; or a spread topic with its streams, as any node has it if no majority answers in half the time.

    Of a lost or a removed stream nobody is asked: it is None. So is a stream whose group does not answer, unless no
    group does; nobody is asked again for its other streams.

    Raises UnknownTopicError, UnavailableError.
    """
    deadline = time.monotonic() + timeout
    try:
        return await client.describe_topic(name, timeout=timeout / 2), []
    except (UnknownTopicError, UnavailableError) as error:
        is_stale = isinstance(error, UnavailableError)
        try:
            topic = await client.describe_spread_topic(name, stale=is_stale, timeout=timeout / 2)
        except RequestError:
            raise error from None
    unasked = topic.lost_streams | topic.removed_streams
    streams: list[TopicInfo | None] = []
    silent: dict[GroupId, UnavailableError] = {}
    for number in range(1, topic.streams + 1):
        found = None
        if number not in unasked and topic.group_of(number) not in silent:
            left = max(LOOK_SECONDS, (deadline - time.monotonic()) / 2)
            try:
                found = await client.describe_stream(name, number, timeout=left)
            except UnavailableError as error:
                silent[topic.group_of(number)] = error
        streams.append(found)
    if silent and not any(streams):
        raise next(iter(silent.values()))
    return topic, streams


def _silent(topic: SpreadTopicInfo, streams: Sequence[TopicInfo | None]) -> list[int]:
    """Return the numbers of the streams whose groups did not answer to :func:`describe_any`."""
    unasked = topic.lost_streams | topic.removed_streams
    return [number for number, stream in enumerate(streams, 1) if stream is None and number not in unasked]


def _archiving(
    archive: bool | None, archive_after: float | None, archive_delay: float | None, delete_after: float | None
) -> dict[str, Any]:
    """Return the arguments of a client's call for the options about the archive that were given."""
    given = {
        "archive": archive,
        "archive_after_seconds": archive_after,
        "archive_delay_seconds": archive_delay,
        "delete_after_seconds": delete_after,
    }
    return {name: value for name, value in given.items() if value is not None}


def _groups_of(topic: SpreadTopicInfo) -> list[GroupId]:
    """Return the groups of the streams that were not removed."""
    return [topic.group_of(stream) for stream in topic.kept_streams]


def _described_spread(topic: SpreadTopicInfo) -> dict[str, object]:
    return {
        "name": topic.name,
        "groups": list(topic.groups),
        "slots": topic.slots,
        "retain_bytes": topic.retain_bytes,
        "retain_seconds": topic.retain_seconds,
        "first_position": topic.first_position,
        **described_settings(topic.archive),
        **({"schema": topic.schema} if topic.schema else {}),
        **({"lost_positions": list(topic.lost_positions)} if any(topic.lost_positions) else {}),
    }


def _described(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "first_position": info.first_position,
        "last_position": info.last_position,
        "bytes": info.bytes,
        "retain_bytes": info.retain_bytes,
        "retain_seconds": info.retain_seconds,
        **described_archive(info),
        **({"schema": info.schema} if info.schema else {}),
        **({"keyed": dict(info.keyed)} if info.keyed is not None else {}),
    }


def _print(infos: Sequence[TopicInfo], output: Output) -> None:
    """Print one topic as JSON, or topics as a table."""
    if output is Output.JSON:
        print_json(_described(infos[0]))
        return
    rows = [(i.name, i.first_position, i.last_position, i.bytes, _kept(i)) for i in infos]
    print_table(["topic", "first", "last", "bytes", "keeps"], rows, empty="no topics: viewstamp topic create NAME")


def _kept(info: TopicInfo | SpreadTopicInfo) -> str:
    if info.archive is not None:  # Its retention deletes nothing.
        deleted = info.archive.delete_seconds
        return f"archive, {show_duration(deleted * 1000) if deleted else 'all'}"
    bounds = [show_size(info.retain_bytes)] if info.retain_bytes else []
    bounds += [show_duration(info.retain_seconds * 1000)] if info.retain_seconds else []
    return ", ".join(bounds) or "all"
