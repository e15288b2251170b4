"""The archive settings of topics in the commands ``topic`` and ``archive``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.cli.test_sink import table
from tests.client.cluster import Cluster
from tests.in_thread import in_thread
from viewstamp.cli import main
from viewstamp.cli.topic import ordered_line
from viewstamp.cli.topic_archive import archived_table, archivist_lines
from viewstamp.client.results import ArchivedInfo, ArchiveInfo, SpreadTopicInfo, TopicInfo
from viewstamp.ids import GroupId, Index, Position

SETTINGS = {"after_seconds": 86_400.0, "delay_seconds": 3600.0, "delete_after_seconds": 7_776_000.0}
OPTIONS = ("--archive", "--archive-after", "1d", "--archive-delay", "1h", "--delete-after", "90d")


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[str]:
    """Yield the address of a cluster with the topic ``orders``."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cluster]:
        cluster = Cluster()
        await cluster.start(1)
        await cluster.client().create_topic("orders")
        yield cluster
        await cluster.close()

    with in_thread(opened) as held:
        yield held.held.nodes[0].address


def run(cluster: str, *arguments: str, code: int = 0) -> None:
    assert main.run([*arguments, "--cluster", cluster]) == code


def test_settings_are_configured_created_and_shown(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("configure", "orders"), ("create", "trades"), ("create", "trades"), ("describe", "orders")):
        run(cluster, "topic", *command, *(OPTIONS if command[0] != "describe" else ()), "--output", "json")
        shown = json.loads(capsys.readouterr().out)
        assert shown["archive"] == SETTINGS
        assert shown["archived"]["runs"] == 0
    run(cluster, "archive", "log")
    captured = capsys.readouterr()
    assert "no runs" in captured.err
    assert table(captured.out) == [
        ["topic", "archive after", "archive delay", "delete after"],
        ["orders", "1d", "1h", "90d"],
        ["trades", "1d", "1h", "90d"],
    ]
    run(cluster, "topic", "describe", "orders")
    shown = table(capsys.readouterr().out)
    assert shown[1][-1] == "archive, 90d"
    assert shown[2] == [*("archived from", "to", "runs", "bytes", "oldest", "waiting for")]
    assert "the archivist is " in " ".join(shown[-1])
    run(cluster, "topic", "configure", "orders", "--no-archive", "--output", "json")
    assert "archive" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("configure", "orders", "--delete-after", "90d"), 5, "would have no archive"),
        (("create", "orders", "--archive"), 5, "exists with other archive settings"),
        (("configure", "orders"), 2, "there is nothing to change"),
        (("configure", "orders", "--archive", "--archive-after", "soon"), 2, "soon"),
    ],
)
def test_options_that_make_no_sense_are_errors(
    cluster: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    run(cluster, "topic", *arguments, code=code)
    assert message in capsys.readouterr().err


def test_the_archived_part_has_ages_and_the_state_of_the_archivist() -> None:
    now = 100 * 86_400_000_000
    part = ArchivedInfo(
        first_position=1,
        last_position=500,
        runs=3,
        bytes=5 * 1024 * 1024,
        first_time=now - 3 * 86_400_000_000 - 1,
        last_time=now,
        waiting_since=now - 90_000_000,
        waiting_bytes=3 * 1024 * 1024,
    )
    info = TopicInfo(
        name="orders",
        first_position=Position(1),
        last_position=Position(600),
        bytes=1,
        archive=ArchiveInfo(after_seconds=0.0, delay_seconds=0.0, delete_seconds=0.0),
        archived=part,
    )
    failing = {"state": "failing", "topic": "orders", "reason": "no space"}
    assert archived_table(info, now)[1] == [[1, 500, 3, 5 * 1024 * 1024, "3d", "90s"]]

    def lines(archivist: dict[str, object]) -> list[str]:
        return archivist_lines([info], archivist, now)

    assert lines(failing) == ["the next run of orders is due at an unknown time", "the archivist is failing: no space"]
    waits = {**failing, "run_bytes": 256 * 1024 * 1024, "wait_seconds": 7290.0}
    assert lines(waits)[0] == "the next run of orders is due in 2h, or when 256MiB of log wait (now 3.0 MiB)"
    assert lines({**waits, "wait_seconds": 90.0})[0] == "the next run of orders is due now"
    assert lines({**failing, "topic": "trades"})[1] == "the archivist is idle"
    assert lines({})[1] == "the archivist is unknown"
    again = {**failing, "state": "writing", "failed_topic": "orders"}
    assert lines(again)[1] == "the archivist is writing after a failure: no space"
    assert lines({**again, "topic": "trades"})[1] == "the archivist is failing: no space"
    assert lines({**again, "failed_topic": "trades"})[1] == "the archivist is writing"
    requested = replace(info, archive=None)
    assert archivist_lines([requested], {}, now) == ["the archivist works on request"]
    trades = replace(info, name="trades", archived=None)
    assert archivist_lines([requested, trades], {**failing, "topic": "trades"}, now) == [
        "the archivist works on request for orders",
        "the archivist is failing for trades: no space",
    ]


@pytest.mark.parametrize(
    ("first", "following", "waiting", "line"),
    [
        (1, 11, 2, "records 1 to 10 of orders have a position; waiting ones get theirs soon"),
        (4, 11, 0, "records 4 to 10 of orders have a position"),
        (11, 11, 0, "all records of orders up to position 10 were deleted"),
        (11, 11, 1, "all records of orders up to position 10 were deleted; waiting ones get theirs soon"),
        (1, 1, 0, "no record of orders has a position"),
        (1, 1, 3, "no record of orders has a position; waiting ones get theirs soon"),
    ],
)
def test_records_wait_for_their_positions_only_if_there_are_some(
    first: int, following: int, waiting: int, line: str
) -> None:
    info = SpreadTopicInfo(
        id=Index(5),
        name="orders",
        groups=(GroupId(7),),
        slots=1,
        ranges=((0, 1),),
        retain_bytes=0,
        retain_seconds=0.0,
        first_position=first,
        next_position=following,
    )
    assert ordered_line(info, waiting) == line


@pytest.mark.parametrize("command", ["log", "check", "run"])
def test_the_archive_of_an_unknown_topic_is_an_error_and_not_empty(
    cluster: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(cluster, "archive", command, "order", code=5)
    assert "no topic is named 'order'" in capsys.readouterr().err
