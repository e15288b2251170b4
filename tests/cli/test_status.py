"""The summary of the nodes' statuses, and its tables."""

from __future__ import annotations

from typing import Any

import pytest

from viewstamp.cli.status import print_summary
from viewstamp.doctor.status import KEYS, summary


def node(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "address": f"127.0.0.1:{name[1:]}", "reachable": True, "cluster_id": "c", **fields}


def test_leader_is_the_one_of_the_highest_term() -> None:
    statuses = [
        node("n1", role="leader", term=3),
        node("n2", role="leader", term=4),
        node("n3", role="follower", term=4),
    ]
    result = summary(statuses, {})
    assert (result["leader"], result["term"], result["cluster_id"]) == ("n2", 4, "c")


def test_leader_of_an_older_term_does_not_count() -> None:
    result = summary([node("n1", role="leader", term=3), node("n2", role="candidate", term=4)], {})
    assert result["leader"] is None


def test_unreachable_node_has_a_name_and_every_key() -> None:
    statuses = [node("n10", role="follower", term=1), {"address": "127.0.0.1:2", "reachable": False}]
    result = summary(statuses, {"127.0.0.1:2": "n2"})
    assert [each["id"] for each in result["nodes"]] == ["n2", "n10"]
    away = result["nodes"][0]
    assert set(KEYS) <= set(away)
    assert (away["reachable"], away["role"]) == (False, None)


def test_node_that_reads_its_log_has_no_term() -> None:
    result = summary([node("n1", lifecycle="bootstrapping"), node("n2", role="leader", term=4)], {})
    assert (result["leader"], result["term"]) == ("n2", 4)


def test_injected_fault_is_warned_of() -> None:
    cut = [{"fault": "partition", "peers": ["n2", "n3"], "ms": 0, "until": 0}]
    (warning,) = summary([node("n1", term=1, role="leader", **LOG, chaos=cut)], {})["warnings"]
    assert warning.startswith("CHAOS: partition from n2, n3 is injected into n1")


MIB = 1024 * 1024
LOG: dict[str, Any] = {
    "log_bytes": 10 * MIB,
    "log_bytes_max": 64 * MIB,
    "durability": "majority, synced",
    "applied_index": 9,
}


def actors(**digests: str) -> dict[str, Any]:
    return {"state": {"actors": {name: {"digest": digest, "instances": 2} for name, digest in digests.items()}}}


def test_healthy_nodes_have_no_warnings() -> None:
    nodes = [node(f"n{number}", term=1, role="follower", **LOG, **actors(stock="aa")) for number in (1, 2, 3)]
    result = summary(nodes, {})
    assert result["warnings"] == []
    assert result["nodes"][1]["actors"] == {"stock": {"digest": "aa", "instances": 2}}
    assert "state" not in result["nodes"][1]


def test_different_digests_at_the_same_index_are_warned_of() -> None:
    nodes = [
        node("n1", term=1, role="leader", **LOG, **actors(stock="aa", till="0")),
        node("n2", term=1, role="follower", **LOG, **actors(stock="bb", till="0")),
        node("n3", term=1, role="follower", **LOG | {"applied_index": 8}, **actors(stock="cc", till="1")),
    ]
    (warning,) = summary(nodes, {})["warnings"]
    assert warning == "DIVERGED: the state of actor stock differs at index 9: aa on n1; bb on n2"


@pytest.mark.parametrize(("used", "total", "warned"), [(51, 64, False), (52, 64, True), (10_000, 0, False)])
def test_nearly_full_log_is_warned_of(used: int, total: int, warned: bool) -> None:
    nodes = [node("n1", term=1, role="leader", **LOG | {"log_bytes": used * MIB, "log_bytes_max": total * MIB})]
    warnings = summary(nodes, {})["warnings"]
    assert [warning[:43] for warning in warnings] == ["the log of n1 is 81% full (52.0 of 64.0 MiB"] * warned


def test_interval_mode_is_warned_of() -> None:
    nodes = [node("n1", term=1, role="leader", **LOG | {"durability": "interval_may_lose_acknowledged_writes"})]
    (warning,) = summary(nodes, {})["warnings"]
    assert warning.startswith("n1 acknowledges before it syncs (interval_may_lose_acknowledged_writes)")


def test_damaged_snapshot_is_warned_of() -> None:
    """An older snapshot was used, so it does no harm yet, but the disk may damage that one next."""
    nodes = [node("n1", term=1, role="leader", **LOG, damaged_snapshots=["/n1/snapshots/7-1.snapshot"])]
    (warning,) = summary(nodes, {})["warnings"]
    assert warning.startswith("a snapshot of n1 is damaged")
    assert warning.endswith("/n1/snapshots/7-1.snapshot")


def test_store_that_is_away_is_warned_of() -> None:
    archive = {"trouble": "/mnt/runs is empty, or another store", "remedy": "mount it"}
    nodes = [node("n1", role="leader", **LOG, archive=archive), node("n2", **LOG, archive={**archive, "trouble": ""})]
    assert summary(nodes, {})["warnings"] == [
        "n1 cannot use the store of archived records: /mnt/runs is empty, or another store. `viewstamp doctor` has the"
        " remedy"
    ]


def test_tables_show_logs_actors_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    status = node("n1", term=3, role="leader", lifecycle="running", history=[[0, 1]], **LOG, **actors(stock="00ffa"))
    status |= {"commit_index": 9, "durable_index": 9, "last_index": 9}
    status["state"]["actors"]["tally"] = {"instances": 0, "digest": "00000", "groups": [3, 5]}
    status |= {"log_bytes": 60 * MIB, "restart_seconds_estimate": 1.26, "last_snapshot_index": 1234}
    print_summary(summary([status, {"address": "127.0.0.1:2", "reachable": False}], {}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n1", "60.0", "of", "64.0", "MiB", "1.3", "s", "1,234", "-", "majority,", "synced"] in lines
    assert ["stock", "n1", "2", "00ffa", "9"] in lines
    assert ["tally", "n1", "in", "groups", "3,5", "-", "9"] in lines, "group 0 has no instance, so no digest of them"
    assert lines[-1][:6] == ["WARNING:", "the", "log", "of", "n1", "is"]
