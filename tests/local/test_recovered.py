"""A cluster of three processes with groups loses two nodes with their disks, and goes on with the third one's files."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.test_resharded import SOURCE, Shell
from tests.processes import none_left
from viewstamp.cli import main
from viewstamp.errors import TrimmedError
from viewstamp.local.cluster import LocalCluster

pytestmark = pytest.mark.slow

KEYS = [b"%d" % number for number in range(12)]


@pytest.fixture
def shell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """Three groups on all nodes, one on the nodes that will be lost, and a topic with a stream in each."""
    shell = Shell(tmp_path / "shop", capfd)
    with none_left(tmp_path):
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "tills.py").write_text(SOURCE)
        shell.ok("cluster", "start", "--nodes", "3", "--set=actors.till=tills:Till", "--set=actors.home=tills:Till")
        for _ in range(3):
            shell.ok("group", "place")
        shell.ok("group", "place", "alone", "--founders", "n2,n3")
        shell.ok("topic", "create", "orders", "--streams", "4")
        shell.ok("actor", "spread", "till")
        yield shell


def append(shell: Shell, values: range) -> dict[bytes, int]:
    """Append records, and return the positions of those that were acknowledged with one."""

    async def work(client: Any) -> dict[bytes, int]:
        receipts = [await client.append("orders", b"%d" % at, key=KEYS[at % len(KEYS)], ordered=True) for at in values]
        return {b"%d" % at: receipt.global_position for at, receipt in zip(values, receipts, strict=True)}

    return LocalCluster.open(shell.directory).target.ask(work)


def read(shell: Shell) -> tuple[dict[bytes, int], list[int]]:
    """Read the topic by position, over each hole; return the positions of the records, and where holes begin."""

    async def work(client: Any) -> tuple[dict[bytes, int], list[int]]:
        found: dict[bytes, int] = {}
        holes: list[int] = []
        start: int | None = 1
        while start is not None:
            try:
                async for record in client.read("orders", start=start):
                    found[record.value] = record.position
                    start = record.position + 1
                start = None
            except TrimmedError as error:
                holes += [start] if "were lost with a majority" in error.message else []
                start = error.first
        return found, holes

    return LocalCluster.open(shell.directory).target.ask(work)


def kill_and_lose(shell: Shell, *names: str) -> None:
    async def kill() -> None:
        for name in names:
            await LocalCluster.open(shell.directory).nodes[name].kill()

    asyncio.run(kill())
    for name in names:
        shutil.rmtree(shell.directory / name)


def test_all_groups_go_on_with_the_files_of_one_node_of_three(
    shell: Shell, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = LocalCluster.open(shell.directory).id
    given = append(shell, range(60))
    shell.put()
    lost_group = next(row["id"] for row in shell.ok("group", "list")["groups"] if row["streams"][0] == "alone")
    kill_and_lose(shell, "n2", "n3")
    shell.ok("cluster", "stop")
    code, told = shell("cluster", "fork")
    assert (code, told["error"]) == (3, "NoQuorumError")
    code, told = shell("recover", "--all-nodes")
    assert (code, told["error"]) == (2, "ConfigError")
    assert f"--yes-lose-data {old}" in told["remedy"]
    assert main.run(["recover", "--all-nodes", "--dir", str(shell.directory)]) == 2
    report = capfd.readouterr().err
    assert f"group {lost_group}: NOTHING IS LEFT OF IT" in report
    assert f"actor till: the instances in the groups {lost_group} are lost" in report
    assert re.search(rf"topic orders, stream \d in group {lost_group} is given up behind its record 0", report)
    assert re.search(r"topic orders: positions \d+ to \d+ of the topic are lost", report)
    assert report.count("voters left: n1; lost: n2, n3") == 4
    made = shell.ok("recover", "--all-nodes", "--yes-lose-data", old)
    assert [member["id"] for member in made["members"]] == ["n1", "n2", "n3"]
    assert len(made["groups"]) == 4
    loss = made["loss"]
    assert [each["group"] for each in loss["groups"] if each["is_lost"]] == [lost_group]
    assert loss["actors"] == [{"actor": "till", "groups": [lost_group]}]
    [given_up] = [each for each in loss["streams"] if each["is_given_up"]]
    assert given_up["group"] == lost_group
    holes = {at for each in loss["lost_positions"] for at in range(each["first"], each["end"])}
    shell.ok("cluster", "start")
    found, seen = read(shell)
    assert {value: position for value, position in given.items() if position not in holes} == found
    assert set(seen) == {each["first"] for each in loss["lost_positions"]}
    assert len(found) >= 30

    more = append(shell, range(60, 120))
    found, _ = read(shell)
    assert found.items() >= more.items()
    for key in range(len(KEYS)):
        positions = [position for value, position in found.items() if int(value) % len(KEYS) == key]
        assert positions == sorted(positions), "a key has lost its order"
    assert min(more.values()) > max(given.values())
    assert len(shell.put()) == 18
    found_wrong = {each["code"] for each in shell("doctor")[1]["findings"]}
    assert found_wrong <= {"slow_disk", "slow_loop"}, "this machine may be under load"
    target = str(shell.directory.parent / "backup")
    shell.ok("backup", "create", target)
    monkeypatch.syspath_prepend(shell.directory)
    capfd.readouterr()
    actors = ["--actor", "till=tills:Till", "--actor", "home=tills:Till"]
    main.run(["backup", "verify", target, "--start", *actors, "--output", "json"])
    drilled = json.loads(capfd.readouterr().out.splitlines()[-1])["drill"]
    assert not any("orders" in each or "spread" in each for each in drilled["differences"])
    assert drilled["records"]["orders"] == len(found)
    shell.ok("cluster", "stop", "n1")
    assert read(shell)[0] == found, "all nodes have all groups"
    code, told = shell("recover", "--yes-lose-data", LocalCluster.open(shell.directory).id)
    assert code in (2, 5), "nodes run"
