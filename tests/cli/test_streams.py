"""Topics with streams, and actors over groups, by the commands, on a cluster of real processes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.local.find import find_cluster
from viewstamp.terminal.number_words import number_words

pytestmark = pytest.mark.slow

ACTOR = """
import viewstamp as vs


class Tally(vs.ReplicatedActor):
    def __init__(self) -> None:
        self.total = 0

    @vs.command
    def add(self, n: int) -> int:
        self.total += n
        return self.total
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a cluster"
    with none_left(path):
        yield path


async def append(directory: Path, topic: str, stream: int, *values: bytes) -> None:
    """Append to one stream."""
    async with find_cluster(directory, None).connect(30.0) as client:
        for value in values:
            await client.append(topic, value, stream=stream)


def check_tokens(run: Callable[..., Any], directory: Path, lines: Path) -> None:
    """Turn access control on, and append and read with a token that may do it, and with one that may not."""
    files = {name: str(directory.parent / name) for name in ("writer", "other", "ops")}
    run("token", "create", "writer", "--role", "append:bills", "--role", "read:bills", "--out", files["writer"])
    run("token", "create", "other", "--role", "append:bills.*", "--role", "read:orders", "--out", files["other"])
    run("token", "create", "ops", "--role", "administer", "--out", files["ops"])
    node = run("status")["nodes"][0]["address"]

    def by(name: str, *arguments: str) -> int:
        return main.run([*arguments, "--cluster", node, "--token-file", files[name]])

    assert by("writer", "append", "bills", str(lines), "--ordered") == 0
    assert by("writer", "read", "bills") == 0
    assert by("other", "append", "bills", str(lines)) == 5
    assert by("other", "read", "bills", "--stream", "1") == 5
    assert by("writer", "topic", "create", "more", "--streams", "1") == 5
    assert by("ops", "stream", "balance") == 0
    assert run("append", "bills", str(lines))["acknowledged"] == 2, "whoever reads the directory is an administrator"
    run("token", "revoke", "writer")
    deadline = time.monotonic() + 60.0
    while by("writer", "append", "bills", str(lines)) != 5:
        assert time.monotonic() < deadline, "a revoked token appends"


def check_a_removal(run: Callable[..., Any], keyed_file: Path) -> None:
    """Remove stream 2 of bills, which is sealed and keeps records."""
    topic = run("topic", "describe", "bills")
    assert "is open; it was not removed" in run("stream", "remove", "bills", "3", code=5)["message"]
    assert "has no stream 9" in run("stream", "remove", "bills", "9", code=5)["message"]
    kept = run("stream", "remove", "bills", "2", code=5)
    last = topic["streams"][1]["last_position"]
    assert f"stream 2 of topic 'bills' keeps {last} records, up to position" in kept["message"]
    position = int(kept["remedy"].partition("--before ")[2].partition(";")[0])
    run("topic", "trim", "bills", "--before", str(position))
    while (stream := run("topic", "describe", "bills")["streams"][1])["first_position"] <= last:
        time.sleep(0.05)
    removed = run("stream", "remove", "bills", "2")
    assert removed == {"stream": 2, "phase": "removed", "gone_at": position}
    assert run("stream", "remove", "bills", "2") == removed
    described = run("topic", "describe", "bills")
    assert described["streams"][1] == {
        "stream": 2,
        "group": stream["group"],
        "phase": "removed",
        "into": 1,
        "last_position": last,
        "gone_at": position,
        "waiting": 0,
    }
    assert "stream 2 of topic 'bills' was removed" in run("read", "bills", "--stream", "2", code=5)["message"]
    assert "was removed" in run("append", "bills", str(keyed_file), "--stream", "2", code=5)["message"]
    assert run("append", "bills", str(keyed_file), "--keyed", "--ordered")["streams"] == [3]
    assert run("read", "bills")[0]["position"] == run("topic", "describe", "bills")["first_position"] == position
    assert run("stream", "add", "bills")["stream"] == 4, "the number is not used again"


def check_a_loss(run: Callable[..., Any], directory: Path, keyed_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Kill the only node of a group, and give its stream up."""
    nodes = {each["id"]: each for each in run("status")["nodes"]}
    victim = next(each for each, status in nodes.items() if status["role"] != "leader")
    alone = run("group", "place", "s3", "--founders", victim, "--timeout", "60")["id"]
    everywhere = run("group", "list")["groups"][0]["id"]
    run("topic", "create", "parcels", "--streams", "2", "--groups", f"{alone},{everywhere}", "--timeout", "60")
    assert run("append", "parcels", str(keyed_file), "--keyed", "--ordered")["streams"] == [1, 2]
    assert "needs --lost" in run("stream", "seal", "parcels", "1", "--yes-lose-stream", "one", code=2)["message"]
    assert run("cluster", "kill", victim)["killed"]
    silent, open_one = run("topic", "describe", "parcels", "--timeout", "4")["streams"]
    assert silent == {"stream": 1, "group": alone, "phase": "open", "no_answer": True}
    assert open_one["last_position"] > 0
    assert main.run(["topic", "describe", "parcels", "--timeout", "4", "--dir", str(directory)]) == 0
    shown = capfd.readouterr()
    assert re.search(rf"1 +{alone} +no answer", shown.out)
    assert f"group {alone} does not answer: it has no leader with a majority" in shown.err
    lost = ("stream", "seal", "parcels", "1", "--lost")
    assert main.run([*lost, "--dir", str(directory)]) == 2
    told = capfd.readouterr().err
    for line in (
        f"no answer: {victim}",
        "ACKNOWLEDGED RECORDS NEVER GET A POSITION IN THE TOPIC: at least 0",
        'add --yes-lose-stream "one"',
    ):
        assert line in told
    ended = run(*lost, "--yes-lose-stream", "one")
    assert (ended["phase"], ended["into"], ended["lost_at"]) == ("lost", 2, 65)
    assert run(*lost) == ended, "a second copy finds the first, and asks nothing"
    assert run("append", "parcels", str(keyed_file), "--keyed", "--ordered")["streams"] == [2]
    described = run("topic", "describe", "parcels")
    assert [each["phase"] for each in described["streams"]] == ["lost", "open"]
    assert described["streams"][0]["last_position"] == ended["last_position"]
    assert [each["position"] for each in run("read", "parcels", "--from", "65")] == list(range(65, 129))
    run("topic", "trim", "parcels", "--before", "65")
    while run("topic", "describe", "parcels")["streams"][1]["first_position"] == 1:
        time.sleep(0.05)
    assert [each["position"] for each in run("read", "parcels")] == list(range(65, 129))
    assert run("stream", "remove", "parcels", "1") == {"stream": 1, "phase": "removed", "gone_at": 65}
    assert [each["position"] for each in run("read", "parcels")] == list(range(65, 129))
    assert [each["phase"] for each in run("topic", "describe", "parcels")["streams"]] == ["removed", "open"]
    remove = ("group", "remove", str(alone))
    words = number_words(alone)
    assert f'add --yes-remove-group "{words}"' in run(*remove, code=2)["remedy"]
    assert "is not the id of the group in words" in run(*remove, "--yes-remove-group", "x", code=2)["message"]
    assert "--lost" in run(*remove, "--yes-remove-group", words, "--timeout", "1", code=3)["remedy"]
    assert run(*remove, "--lost", "--yes-remove-group", words) == {"group": alone, "removed": True}
    assert alone not in [each["id"] for each in run("group", "list")["groups"]]
    assert [each["phase"] for each in run("topic", "describe", "parcels")["streams"]] == ["removed", "open"]
    assert run(*remove, "--yes-remove-group", words)["removed"], "a second copy finds the first"


def test_a_topic_with_streams_is_created_described_listed_and_read(
    run: Callable[..., Any], directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory.mkdir()
    (directory / "tally_of_a_test.py").write_text(ACTOR)
    actor = ("--set", "actors.tally=tally_of_a_test:Tally")
    assert main.run(["cluster", "start", "--dir", str(directory), *actor]) == 0
    refused = run("topic", "create", "orders", "--streams", "2", code=5)
    assert "no group is established" in refused["message"]
    assert "viewstamp group place" in refused["remedy"]
    first = run("group", "place", "s1", "--timeout", "60")["id"]
    unnamed = run("group", "place", "--timeout", "60")
    assert unnamed["streams"] == ["group-1"]
    second = unnamed["id"]
    topic = run("topic", "create", "orders", "--streams", "3", "--retain-bytes", "1MiB", "--timeout", "60")
    assert topic == {
        "name": "orders",
        "groups": [first, second, first],
        "slots": 4093,
        "retain_bytes": 1 << 20,
        "retain_seconds": 0.0,
        "first_position": 1,
    }
    assert run("topic", "create", "orders", "--streams", "3") == topic
    assert "exists with 3 streams, not 4" in run("topic", "create", "orders", "--streams", "4", code=5)["message"]
    assert "is spread over 3 streams" in run("topic", "create", "orders", code=5)["message"]
    assert run("actor", "spread", "tally") == {"name": "tally", "groups": [first, second], "slots": 4093}
    assert "is spread with the groups" in run("actor", "spread", "tally", "--groups", f"{first}", code=5)["message"]
    for key in ("a", "b", "c", "d"):
        assert run("actor", "call", "tally", "add", "[7]", "--key", key) == {"result": 7}
    (listed,) = run("actor", "list")["actors"]
    assert (listed["instances"], listed["groups"], listed["missing_groups"]) == (4, [first, second], [])
    assert run("topic", "create", "bills", "--streams", "2", "--groups", f"{second}")["groups"] == [second, second]
    named = run("topic", "create", "named", "--streams", "2", "--groups", "group-1,s1")
    assert named["groups"] == [second, first]
    run("topic", "create", "plain")
    assert "--groups needs --streams" in run("topic", "create", "more", "--groups", "7", code=2)["message"]
    assert (
        "'7x': no such group" in run("topic", "create", "more", "--streams", "1", "--groups", "7x", code=2)["message"]
    )
    listed = run("topic", "list")
    assert [each["name"] for each in listed["topics"]] == ["plain"]
    assert [each["name"] for each in listed["spread_topics"]] == ["orders", "bills", "named"]
    asyncio.run(append(directory, "orders", 2, b"one", b"two"))
    described = run("topic", "describe", "orders")
    assert [(each["stream"], each["group"], each["last_position"]) for each in described["streams"]] == [
        (1, first, 0),
        (2, second, 2),
        (3, first, 0),
    ]
    balanced = run("stream", "balance")["groups"]
    assert [each["group"] for each in balanced] == [0, first, second]
    assert len({each["leader"] for each in balanced}) == 3
    assert not any(each["reason"] for each in balanced)
    configured = run("topic", "configure", "orders", "--retain-bytes", "2MiB")
    assert [(each["retain_bytes"], each["follows"]) for each in configured["streams"]] == [(2 << 20, True)] * 3
    assert "cannot be trimmed to 900" in run("topic", "trim", "orders", "--before", "900", code=5)["message"]
    assert run("topic", "trim", "orders", "--before", "1")["first_position"] == 1
    assert "no topic is named 'none'" in run("topic", "trim", "none", "1", code=5)["message"]
    assert "give one first position" in run("topic", "trim", "orders", code=2)["message"]
    assert "no topic is named 'none'" in run("topic", "configure", "none", "--retain-bytes", "1", code=5)["message"]
    assert [(each["position"], each["value"]) for each in run("read", "orders", "--stream", "2")] == [
        (1, "one"),
        (2, "two"),
    ]
    lines_file = directory.parent / "lines"
    lines_file.write_bytes(b"three\nfour\n")
    within = run("append", "orders", str(lines_file), "--stream", "2")
    assert (within["acknowledged"], within["first_position"], within["streams"]) == (2, 3, [2])
    ordered = run("append", "bills", str(lines_file), "--ordered", "--stream", "2")
    assert (ordered["first_position"], ordered["first_global_position"], ordered["last_global_position"]) == (1, 1, 2)
    anywhere = run("append", "orders", str(lines_file))
    assert (anywhere["acknowledged"], len(anywhere["streams"])) == (2, 1)
    assert (
        "no topic with streams is named 'plain'"
        in run("append", "plain", str(lines_file), "--stream", "2", code=5)["message"]
    )
    assert "no topic is named 'none'" in run("append", "none", str(lines_file), code=5)["message"]
    read = run("read", "orders")
    assert [each["position"] for each in read] == [1, 2, 3, 4, 5, 6], "also the records that were appended just before"
    described = run("topic", "describe", "orders")
    assert [each["waiting"] for each in described["streams"]] == [0, 0, 0]
    assert described["is_order_current"]
    of_stream = [(each["stream_position"], each["value"]) for each in read if each["stream"] == 2]
    assert of_stream[:4] == list(enumerate(["one", "two", "three", "four"], 1))
    assert run("read", "orders", "--from", "3", "--to", "4") == read[2:4]
    assert "has streams, whose nodes are stale" in run("read", "orders", "--stale", code=5)["message"]
    assert "no topic with streams is named 'plain'" in run("read", "plain", "--stream", "2", code=5)["message"]
    assert "no topic is named 'none'" in run("topic", "describe", "none", code=5)["message"]
    keyed_file = directory.parent / "keyed lines"
    keyed_file.write_bytes(b"".join(b"key %d\tvalue %d\n" % (number % 16, number) for number in range(64)))
    keyed = run("append", "bills", str(keyed_file), "--keyed", "--ordered")
    assert (keyed["acknowledged"], keyed["streams"]) == (64, [1, 2])
    values = [(each["key"], each["value"]) for each in run("read", "bills", "--from", "3")]
    assert values == [(f"key {number % 16}", f"value {number}") for number in range(64)]
    check_tokens(run, directory, lines_file)
    last = run("topic", "describe", "bills")["streams"][1]["last_position"]
    sealed = run("stream", "seal", "bills", "2", "--into", "1")
    assert sealed == {"stream": 2, "phase": "sealed", "into": 1, "last_position": last}
    assert "is the last open stream" in run("stream", "seal", "bills", "1", code=5)["message"]
    assert (
        "is sealed; nothing was written" in run("append", "bills", str(lines_file), "--stream", "2", code=5)["message"]
    )
    ended = run("topic", "describe", "bills")["streams"]
    assert [(each["phase"], each.get("into")) for each in ended] == [("open", None), ("sealed", 1)]
    assert run("stream", "add", "bills", "--group", "s1") == {"stream": 3, "group": first}
    moved = run("stream", "move", "bills", "1", "--group", f"{first}")
    assert (moved["phase"], moved["into"]) == ("sealed", 3)
    assert run("stream", "move", "bills", "1", "--group", "s1") == moved
    assert run("append", "bills", str(keyed_file), "--keyed")["streams"] == [3]
    assert "in group" in run("stream", "move", "bills", "3", "--group", "s1", code=5)["message"]
    assert "names 2 groups" in run("stream", "add", "bills", "--group", f"{first},{second}", code=2)["message"]
    check_a_removal(run, keyed_file)
    no_archive = run("archive", "run", "bills", code=5)
    assert "has no directory for the archive" in no_archive["message"]
    configured = run("topic", "configure", "named", "--archive", "--delete-after", "90d")
    assert configured["archive"]["delete_after_seconds"] == 90 * 86_400.0
    logged = run("archive", "log", "named")
    assert ([each["name"] for each in logged["topics"]], logged["stream_runs"]) == (["named"], [])
    capfd.readouterr()
    for arguments, lines in (
        (["stream", "seal", "bills", "1"], ["stream 1 of bills is sealed behind position"]),
        (["stream", "remove", "bills", "2"], ["stream 2 of bills is removed; group"]),
        (
            ["topic", "describe", "bills"],
            ["stream 1 is sealed: its keys go to stream 3", "stream 2 is removed: its keys go to stream 1"],
        ),
        (["topic", "describe", "named"], ["no record of named has a position"]),
        (["group", "list"], ["group  leader  term  committed  members   no answer  name"]),
        (["topic", "list"], ["topic   streams  groups", "orders", "bills"]),
        (["topic", "describe", "orders"], ["stream  group", "1 ", "2 ", "3 ", "records 1 to 6 of orders have"]),
        (["read", "orders", "--output", "table", "--from", "6"], ["6  "]),
        (["stream", "balance"], ["group  leader  before", "0 ", "0 of 3 leaders moved"]),
        (["actor", "spread", "tally"], ["actor tally is spread over the groups"]),
        (["actor", "list"], ["actor  class", "tally"]),
        (["status"], [f"tally  n{number}    in groups {first},{second}" for number in (1, 2, 3)]),
        (["status"], ["2 groups, each with a leader: "]),
        (["topic", "create", "orders", "--streams", "3"], ["topic orders is ready, with 3 streams in the groups"]),
    ):
        assert main.run([*arguments, "--dir", str(directory)]) == 0
        printed = capfd.readouterr().out
        assert all(any(line.strip().startswith(start) for line in printed.splitlines()) for start in lines), printed
    check_a_loss(run, directory, keyed_file, capfd)
