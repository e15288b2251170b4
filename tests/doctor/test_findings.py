"""The findings of the doctor: each problem has its code, one sentence and a remedy; a healthy cluster has none."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from viewstamp.consensus.membership import Membership
from viewstamp.consensus.standing import wins
from viewstamp.doctor.findings import CODES, Finding, ProcessReport, Report, findings
from viewstamp.doctor.status import nobody_leads, summary
from viewstamp.ids import NodeId

MIB = 1024 * 1024
NAMES = ("n1", "n2", "n3")
ADDRESSES = {f"n{number}": f"127.0.0.1:{number}" for number in range(1, 6)}
ADDRESSES_OF_THREE = {name: ADDRESSES[name] for name in NAMES}
MEMBERSHIP = {"generation": 1, "voters": ADDRESSES_OF_THREE, "learners": {}}
OPERATING = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


def node(name: str, **fields: Any) -> dict[str, Any]:
    """Return the status of a healthy member; n1 leads."""
    healthy = {
        "id": name,
        "member_id": name,
        "cluster_id": "c",
        "address": ADDRESSES[name],
        "reachable": True,
        "role": "leader" if name == "n1" else "follower",
        "lifecycle": "running",
        "term": 3,
        "leader": "n1",
        "release": "1.0",
        "clock_us": 1_000_000_000,
        "chaos": [],
        "commit_index": 100,
        "applied_index": 100,
        "durable_index": 100,
        "last_index": 100,
        "connected": [other for other in NAMES if other != name],
        "refused_by": {},
        "membership": MEMBERSHIP,
        "log_bytes": 2 * MIB,
        "log_bytes_max": 0,
        "log_bytes_left": 64 * MIB,
        "segment_bytes": 16 * MIB,
        "full": None,
        "loop_lag_ms": 1.0,
        "write_ms": 3.0,
        "state": {"actors": {"stock": {"digest": "aa", "instances": 1}}},
    }
    return {**healthy, **fields}


def away(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "address": ADDRESSES[name], "reachable": False, "error": "refused", **fields}


def look(*changed: dict[str, Any], earlier: Sequence[dict[str, Any]] = (), **fields: Any) -> list[Finding]:
    """Return the findings for three healthy members, of which ``changed`` replace some."""
    return findings(report(*changed, earlier=earlier, **fields))


def report(*changed: dict[str, Any], earlier: Sequence[dict[str, Any]] = (), **fields: Any) -> Report:
    nodes = {name: node(name) for name in NAMES} | {each["id"]: each for each in changed}
    before = {name: node(name) for name in NAMES} | {each["id"]: each for each in earlier}
    summaries = [summary(list(each.values()), {})["nodes"] for each in (nodes, before)]
    return Report(nodes=summaries[0], earlier=summaries[1] if earlier else (), **fields)


def only(found: list[Finding], code: str) -> Finding:
    assert [finding.code for finding in found] == [code]
    return found[0]


def leaderless(*changed: dict[str, Any], **fields: Any) -> list[Finding]:
    return look(*({**each, "role": "candidate"} if each.get("role") else each for each in changed), **fields)


def test_healthy_cluster_has_no_findings() -> None:
    assert look() == []
    assert look(earlier=[node("n2")]) == []


def test_no_node_answers() -> None:
    found = look(*map(away, NAMES), processes=dict.fromkeys(NAMES, ProcessReport()), where=" --dir d")
    assert [finding.code for finding in found] == ["no_answer", "down", "down", "down"]
    assert "n1 at 127.0.0.1:1, n2 at 127.0.0.1:2" in found[0].sentence
    assert found[0].remedy == "run `viewstamp cluster start --dir d`"
    assert found[1].sentence == "n1 is not running"


MOVED = ProcessReport(error="the membership has n3 at 127.0.0.1:3, but ...", is_moved=True, address="127.0.0.1:13")


def test_moved_voter_is_reported_with_both_addresses_and_the_command_that_moves_it() -> None:
    processes = {**dict.fromkeys(("n1", "n2"), ProcessReport(1)), "n3": MOVED}
    found = only(look(away("n3"), processes=processes, where=" --dir d"), "moved")
    assert found.sentence == (
        "the membership has n3 at 127.0.0.1:3, but its settings say 127.0.0.1:13; the cluster works, and stops when "
        "one more fails"
    )
    assert found.remedy.startswith(
        "if it was moved: run `viewstamp members add n3 --dir d`, which starts it there; else"
    )
    running = {**processes, "n3": ProcessReport(7, address="127.0.0.1:13")}
    assert only(look(away("n3"), processes=running), "moved").sentence == found.sentence


def test_when_all_voters_moved_the_remedy_is_to_restore_their_addresses() -> None:
    found = look(*map(away, NAMES), processes=dict.fromkeys(NAMES, MOVED), where=" --dir d")
    assert [finding.code for finding in found] == ["no_answer", "moved", "moved", "moved"]
    assert found[0].remedy == (
        "put the old addresses of n1, n2 and n3 back into their settings, then run `viewstamp cluster start --dir d`"
    )
    assert "members add" not in found[1].remedy
    assert found[1].severity == "error"


def test_no_leader_without_a_majority_gives_the_reason_for_each_missing_voter() -> None:
    found = leaderless(away("n1"), node("n2", silent_until=[3, 90]))
    assert [finding.code for finding in found] == ["no_leader", "down", "silent"]
    assert found[0].sentence == (
        "there is no leader, because 2 of the voters n1, n2 and n3 are needed, and only n3 can vote: n1 is down and n2 "
        "does not vote until its log is repaired; appends and reads wait"
    )
    assert found[0].remedy.startswith("bring back 1 of n1: ")
    assert found[0].remedy.endswith(
        "; if their disks are lost for good, stop the others and run `viewstamp recover --config FILE`"
    )
    assert found[1].sentence.endswith("; without it there is no majority")


def test_when_a_majority_lost_records_the_remedy_is_to_restore_their_files() -> None:
    found = leaderless(*(node(name, silent_until=[3, 90]) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "silent", "silent", "silent"]
    assert "n1, n2 and n3 are needed, and none can vote" in found[0].sentence
    assert found[0].remedy.startswith("no member that answers holds the lost records")


def repairing(name: str, *, waits: bool) -> dict[str, Any]:
    """Return the status of a member that has not read its log yet, so that it does not report the voters either."""
    sentence = f"{name} is repairing, and no other member can give it the records from index 5 to 8: n9: refused"
    repair = {"sentence": sentence, "from": "n9", "bytes": 7, "bytes_total": 9, "waits": waits, "ranges": [[5, 9]]}
    return {
        "id": name,
        "address": ADDRESSES[name],
        "reachable": True,
        "lifecycle": "bootstrapping",
        "repair": repair,
    }


def test_no_leader_while_all_nodes_repair_their_logs() -> None:
    found = look(*(repairing(name, waits=False) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "repairing", "repairing", "repairing"]
    assert found[0].sentence == (
        "there is no leader, because 2 of the nodes n1, n2 and n3 are needed, and none can vote: n1 is repairing its "
        "log, n2 is repairing its log and n3 is repairing its log; appends and reads wait"
    )
    assert found[0].remedy == "wait: n1, n2 and n3 will vote again when they are ready"
    assert found[1].remedy == "wait; it continues by itself"


def test_remedy_for_records_lost_by_all_others_is_to_bring_back_the_node_that_is_down() -> None:
    found = look(away("n1"), repairing("n2", waits=True), repairing("n3", waits=True))
    assert [finding.code for finding in found] == ["no_leader", "down", "repairing", "repairing"]
    assert "n2 has lost records that no member can give it and n3 has lost records" in found[0].sentence
    assert found[0].remedy.startswith("bring back n1, which may hold the records that n2 and n3 lost: ")
    assert "no other member can give it the records" in found[2].sentence
    assert found[2].remedy.startswith("bring back n1, which may hold the records: ")


def test_remedy_does_not_wait_for_records_that_no_member_holds() -> None:
    found = look(*(repairing(name, waits=True) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "repairing", "repairing", "repairing"]
    assert all(finding.remedy.startswith("no member that answers holds the lost records") for finding in found)


def test_no_leader_because_no_voter_is_connected_to_a_majority() -> None:
    found = leaderless(*(node(name, connected=[]) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "unheard", "unheard"]
    assert (
        "no voter is connected to a majority of the voters: n1 is connected to none; n2 is connected to none"
        in found[0].sentence
    )
    assert "repair the network" in found[0].remedy


def test_no_leader_because_a_majority_has_no_disk_space() -> None:
    full = ["the log is full", "free space"]
    found = leaderless(*(node(name, full=full if name != "n3" else None) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "full", "full"]
    assert "n1 and n2 have no disk space" in found[0].sentence


def test_no_leader_because_an_election_is_under_way() -> None:
    finding = only(leaderless(*map(node, NAMES)), "no_leader")
    assert "an election is under way (term 3)" in finding.sentence


def test_leader_of_an_older_term_does_not_count() -> None:
    assert look(node("n2", term=4))[0].code == "no_leader"


def test_stuck_change_of_members_names_the_missing_new_voter() -> None:
    joint = {**MEMBERSHIP, "generation": 2, "outgoing": ADDRESSES_OF_THREE, "voters": {"n1": "a", "n2": "b"}}
    nodes = [node("n1", membership=joint), away("n2"), node("n3", membership=joint)]
    finding = look(*nodes)[0]
    assert finding.code == "change_stuck"
    assert "it needs a majority of the new voters n1 and n2, and n2 is down" in finding.sentence
    assert look(node("n1", membership=joint)) == []


def test_node_that_is_down_is_reported_with_its_last_error_and_the_effect() -> None:
    dead = ProcessReport(error="n2/wal is damaged at byte 7", remedy="put it back")
    finding = only(look(away("n2"), processes={"n2": dead}), "down")
    assert finding.sentence == (
        "n2 is not running: n2/wal is damaged at byte 7; the cluster works, and stops when one more fails"
    )
    assert finding.remedy == "put it back"
    stopped = only(look(away("n2"), processes={"n2": ProcessReport()}), "down")
    assert stopped.remedy == "run `viewstamp cluster restart n2`"
    renewed = away("n2", member_id="n2~1f")
    members = {"generation": 2, "voters": {"n1": "a:1", "n2~1f": "a:2", "n3": "a:3"}, "learners": {}}
    others = [node(name, membership=members) for name in ("n1", "n3")]
    finding = only(look(renewed, *others, processes={"n2": ProcessReport()}), "down")
    assert finding.sentence == "n2 is not running; the cluster works, and stops when one more fails"
    elsewhere = only(look(away("n2", error="no route")), "down")
    assert elsewhere.sentence.startswith("n2 does not answer at 127.0.0.1:2: no route")
    assert "viewstamp node run --config" in elsewhere.remedy


def test_paused_and_hanging_processes_are_distinguished() -> None:
    paused = only(look(away("n3"), processes={"n3": ProcessReport(77, is_paused=True)}), "paused")
    assert "kill -CONT 77" in paused.remedy
    hung = only(look(away("n3"), processes={"n3": ProcessReport(77)}), "hung")
    assert hung.sentence.startswith("n3 (process 77) runs but does not answer: refused; the cluster works")


def test_node_of_another_cluster_at_an_address_is_reported() -> None:
    stranger = away("n3", error="127.0.0.1:3 belongs to cluster d", error_class="WrongClusterError")
    assert "belongs to cluster d" in only(look(stranger), "wrong_cluster").sentence


def test_refused_node_is_reported_with_the_reason() -> None:
    refused = node("n2", refused_by={"n1": "n2 came back with another disk", "n3": "n2 came back with another disk"})
    finding = only(look(refused), "refused")
    assert finding.sentence == "n2 is refused by n1 and n3: n2 came back with another disk"


def test_removed_node_that_still_runs_is_only_reported_as_no_member() -> None:
    """The members refuse it, but its disk is the same, so the remedy for another disk would be wrong."""
    refused_by = {"n1": "n4 is no member of this group: n1, n2, n3"}
    only(look(node("n4", address="127.0.0.1:4", refused_by=refused_by)), "no_member")


def test_repair_is_reported_with_its_source_and_progress() -> None:
    repair = {
        "sentence": "n2 is repairing: ...",
        "from": "n3",
        "bytes": 3 * MIB,
        "bytes_total": 14 * MIB,
        "ranges": [[5, 9]],
    }
    finding = only(look(node("n2", lifecycle="bootstrapping", repair=repair)), "repairing")
    assert finding.sentence == "n2 is repairing 14.0 MiB of its log from n3: 3.0 MiB are done"
    asking = {"sentence": "n2 is repairing: it asks n1 and n3", "from": "", "bytes": 0, "bytes_total": 0, "ranges": []}
    finding = only(look(node("n2", lifecycle="bootstrapping", repair=asking)), "repairing")
    assert finding.sentence == "n2 is repairing: it asks n1 and n3"


def test_members_that_lost_power_wait_for_every_voter() -> None:
    silent = {"silent_until": [3, 1 << 62], "lost_power": True}
    found = leaderless(away("n1"), node("n2", **silent))
    assert [finding.code for finding in found] == ["no_leader", "down", "silent"]
    assert "n2 lost power in interval mode, so its vote counts only if every voter grants one" in found[0].sentence
    assert found[0].remedy.startswith("bring back n1: ")
    assert "acknowledged records may be lost" in found[0].remedy
    assert found[2].sentence.startswith("n2 lost power in interval mode and may lack acknowledged records")
    everybody = leaderless(*(node(name, **silent) for name in NAMES))
    assert everybody[0].sentence.startswith("there is no leader, because an election is under way")


STATES: dict[str, dict[str, Any]] = {
    "well": {},
    "silent": {"silent_until": [3, 91]},
    "lost power": {"silent_until": [3, 1 << 62], "lost_power": True},
    "away": {"reachable": False},
}
"""The states of a voter, and their effect on its status."""


@pytest.mark.parametrize("outgoing", [(), ("n1", "n2", "n4", "n5")], ids=["simple", "joint"])
def test_doctor_reports_missing_voters_exactly_when_the_core_cannot_elect(outgoing: tuple[str, ...]) -> None:
    """Voters that lost power count if every voter answers. The doctor once had its own arithmetic without that."""
    membership = {**MEMBERSHIP, "outgoing": {name: ADDRESSES[name] for name in outgoing}}
    names = sorted({*NAMES, *outgoing})
    voters = {NodeId(name): ADDRESSES[name] for name in NAMES}
    group = Membership(voters, outgoing={NodeId(name): ADDRESSES[name] for name in outgoing})
    for states in itertools.product(STATES, repeat=len(names)):
        nodes = [
            node(name, role="candidate", connected=names, membership=membership, **STATES[state])
            for name, state in zip(names, states, strict=True)
        ]
        if "well" not in states and "lost power" not in states and "silent" not in states:
            continue  # No node answers, so the voters are unknown.
        votes = [NodeId(name) for name, state in zip(names, states, strict=True) if state in ("well", "lost power")]
        recovering = [NodeId(name) for name, state in zip(names, states, strict=True) if state == "lost power"]
        found = next(each for each in findings(Report(nodes=summary(nodes, {})["nodes"])) if each.code == "no_leader")
        is_short = "are needed, and" in found.sentence
        assert is_short != wins(group, votes, recovering, has_waited=False), (states, found.sentence)


def test_silent_node_is_reported_with_its_last_lost_index() -> None:
    assert only(look(node("n2", silent_until=[3, 91])), "silent").sentence.endswith("all records again up to index 90")
    assert only(look(node("n2", silent_until=[3, 1 << 62])), "silent").sentence.endswith("all records again")


def test_node_that_reads_its_log_is_starting() -> None:
    starting = {
        "id": "n2",
        "address": ADDRESSES["n2"],
        "reachable": True,
        "lifecycle": "bootstrapping",
        "release": "1.0",
    }
    assert only(look(starting), "starting").node == "n2"


def test_disconnected_pair_is_reported_once_for_the_node_that_lost_more() -> None:
    found = look(node("n1", connected=["n3"]), node("n2", connected=[], role="candidate"), node("n3", connected=["n1"]))
    finding = only(found, "unheard")
    assert finding.sentence == "n2 and n1 and n3 run, but cannot reach each other"


def test_one_way_partition_is_reported_with_its_direction() -> None:
    found = look(node("n2", connected=["n3"]))
    assert only(found, "unheard").sentence == "messages from n2 do not reach n1; those in the other direction arrive"


def test_joining_learner_is_reported_with_its_progress_and_the_voter_it_replaces() -> None:
    membership = {**MEMBERSHIP, "generation": 2, "learners": {"n4": ADDRESSES["n4"]}, "joining": {"n4": "n2"}}
    nodes = [node(name, membership=membership, connected=[*NAMES, "n4"]) for name in NAMES]
    learner = node("n4", membership=membership, connected=NAMES, durable_index=40, role="learner")
    finding = only(look(*nodes, learner), "catching_up")
    assert finding.sentence.endswith("in place of n2 when it has caught up: it has 40 of 100 records of the log")
    fetching = {**learner, "fetching_snapshot": {"from": "n1", "index": 9, "bytes": MIB, "size": 4 * MIB}}
    assert only(look(*nodes, fetching), "catching_up").sentence.endswith("a snapshot, 1.0 MiB of 4.0 MiB")


def test_member_is_behind_if_it_lacks_records_that_were_committed_at_the_first_look() -> None:
    late = node("n3", durable_index=60)
    assert look(late) == []
    assert look(late, earlier=[node("n1", commit_index=60)]) == []
    finding = only(look(late, earlier=[node("n1", commit_index=61)]), "behind")
    assert finding.sentence == "n3 is behind: it has 60 of 100 records of the log"


def test_node_that_rejects_the_command_is_not_taken_for_one_that_is_down() -> None:
    """The remedy is a certificate, and not a restart."""
    answer = {"error": "only connections with TLS", "error_class": "TlsError", "remedy": "give it its certificate"}
    nodes = [{"id": None, "address": ADDRESSES["n1"], "reachable": False, **answer}]
    [finding] = findings(Report(nodes=summary(nodes, {})["nodes"]))
    assert (finding.code, finding.remedy) == ("rejected", "give it its certificate")
    assert finding.sentence.endswith("rejects this command: only connections with TLS")
    error = nobody_leads(summary(nodes, {})["nodes"], "", is_read=True)
    assert (type(error).__name__, error.remedy) == ("TlsError", "give it its certificate")


def test_member_that_applies_too_slowly_is_reported_with_the_reason_of_its_health_check() -> None:
    slow = node("n2", not_ready={"applied": "5 of 20,000 committed records are applied"})
    finding = only(look(slow), "applying")
    assert (finding.severity, finding.is_passing) == ("warning", True)
    assert finding.sentence.endswith("so it is not ready: 5 of 20,000 committed records are applied")


def test_running_node_that_is_no_member_is_reported() -> None:
    stranger = node("n4", role="follower")
    assert "stop it, or add it" in only(look(stranger), "no_member").remedy
    finding = only(look(stranger, processes={"n4": ProcessReport(5), "n1": ProcessReport(1)}), "no_member")
    assert finding.remedy == "`viewstamp members remove n4` stops it"


def test_address_without_a_member_is_reported() -> None:
    unknown = {"id": None, "address": "127.0.0.1:9", "reachable": False, "error": "refused"}
    finding = only(look(unknown), "no_member")
    assert finding.sentence == "no member listens at 127.0.0.1:9, which was given as an address of the cluster"


def test_full_node_is_reported_with_the_reason_and_what_frees_space() -> None:
    full = {"full": ["the log is full: 0 bytes", "trim topic orders"]}
    finding = only(look(node("n2", **full)), "full")
    assert finding.sentence == "n2 rejects appends: the log is full: 0 bytes"
    assert finding.remedy == "trim topic orders"
    leading = only(look(node("n1", **full)), "full")
    assert leading.remedy == "run `viewstamp leader transfer`, so that a member with space leads; trim topic orders"


def test_nearly_full_log_and_disk_are_reported() -> None:
    log = only(look(node("n2", log_bytes=60 * MIB, log_bytes_max=64 * MIB)), "nearly_full")
    assert log.sentence == "the log of n2 is 94% full: 60.0 MiB of 64.0 MiB"
    disk = only(look(node("n2", log_bytes_left=5 * MIB)), "nearly_full")
    assert disk.sentence == "the disk of n2 has no space for another segment: its log takes 5.0 MiB more"


def test_failing_log_stream_is_reported() -> None:
    failing = node("n2", log_stream_failure="OSError: [Errno 28] No space left on device", log_lines_lost=1200)
    sentence = only(look(failing), "log_stream").sentence
    assert "No space left on device" in sentence
    assert "1,200 lines are lost" in sentence


def test_slow_disk_and_slow_event_loop_are_distinguished() -> None:
    assert "a write and its sync took 400 ms" in only(look(node("n2", write_ms=400.0)), "slow_disk").sentence
    # A late event loop also delays writes; that is not the disk's fault.
    assert "was 700 ms late" in only(look(node("n2", loop_lag_ms=700.0, write_ms=650.0)), "slow_loop").sentence


def test_a_node_that_cannot_read_the_archive_is_reported_once_records_are_archived() -> None:
    assert look(node("n2", archive_problem="pyarrow is not installed", archived_runs=0)) == []
    finding = only(look(node("n2", archive_problem="pyarrow is not installed", archived_runs=1)), "no_archive")
    assert "because pyarrow is not installed" in finding.sentence
    assert "viewstamp[archive]" in finding.remedy


def test_a_leader_that_cannot_archive_is_reported() -> None:
    archiving = {"state": "failing", "topic": "orders", "reason": "the disk is full", "remedy": "free space"}
    finding = only(look(node("n1", archiving=archiving)), "not_archiving")
    assert finding.sentence == (
        "n1 leads, and cannot archive topic orders, so the logs keep the records: the disk is full"
    )
    assert finding.remedy == "free space; it tries again by itself"
    assert look(node("n1", archiving={**archiving, "state": "writing"})) == []
    again = {**archiving, "state": "writing", "topic": "trades", "failed_topic": "orders", "failures": 2}
    assert "cannot archive topic orders," in only(look(node("n1", archiving=again)), "not_archiving").sentence
    assert only(look(node("n2", archive_problem="no pyarrow", archived_topics=1)), "no_archive").node == "n2"
    hosted = [{"group": 7, "archiving": archiving, "state": {"archived_runs": 1}}]
    finding = only(look(node("n1", hosted=hosted)), "not_archiving")
    assert finding.sentence.startswith("n1 (group 7) leads, and cannot archive topic orders,")
    assert finding.node == "n1"
    hosted = [{"group": 7, "state": {"archived_runs": 1}}]
    assert only(look(node("n2", archive_problem="no pyarrow", hosted=hosted)), "no_archive").node == "n2"


def test_keyed_topics_that_a_node_cannot_read_or_hold_are_reported() -> None:
    without = only(look(node("n2", archive_problem="no pyarrow", keyed_topics=1)), "no_archive")
    assert "because no pyarrow: while it leads, records cannot be found by key" in without.sentence
    bounds = {"key_table_bytes_max": 128 * MIB}
    assert look(node("n1", key_table_bytes=96 * MIB, **bounds)) == []
    full = only(look(node("n1", key_table_bytes=97 * MIB, **bounds)), "undumped_keys")
    assert full.sentence == (
        "n1 holds 97.0 MiB of records of keyed topics that are in no file; from 128MiB on, records cannot be found by"
        " key"
    )


def test_runs_that_cannot_be_read_are_reported() -> None:
    finding = only(look(node("n2", unreadable_runs={"7": "run file c/7 is damaged", "9": "gone"})), "unreadable_runs")
    assert finding.sentence == (
        "n2 cannot read archived run 7 (and 1 more), so its log keeps these records: run file c/7 is damaged"
    )
    without = node("n2", archive_problem="it has no archive", archived_runs=1, unreadable_runs={"7": "no archive"})
    only(look(without), "no_archive")  # The files may be intact.


FOUNDERS = {name: ADDRESSES[name] for name in NAMES}
VOTERS = {"generation": 1, "voters": FOUNDERS, "learners": {}}


def placed(**fields: Any) -> dict[str, Any]:
    group = {"id": 7, "members": FOUNDERS, "streams": ["east"], "hosted": list(NAMES), "is_established": True}
    return {**group, "failure": "", **fields}


def part(role: str, member: str, **fields: Any) -> dict[str, Any]:
    return {"group": 7, "failure": "", "role": role, "member_id": member, "membership": VOTERS, **fields}


def founder(name: str, role: str = "follower", **fields: Any) -> dict[str, Any]:
    return node(name, placed=[placed()], hosted=[part(role, name, **fields)])


def test_a_group_without_a_leader_is_reported_with_the_voters_that_do_not_run() -> None:
    assert look(founder("n1"), founder("n2", "leader"), founder("n3")) == []
    down, group = sorted(look(founder("n1"), founder("n2"), away("n3")), key=lambda each: each.code)
    assert (down.code, group.code, group.severity) == ("down", "group_no_leader", "error")
    assert group.sentence == (
        "group 7 (east) has no leader, so its streams take no appends: a majority of its voters runs it"
    )
    lost = part("candidate", "n2~1f")
    finding = only(look(founder("n1"), node("n2", placed=[placed()], hosted=[lost]), node("n3")), "group_no_leader")
    assert finding.sentence.endswith(": of its voters n1, n2 and n3, n2 and n3 do not run")
    assert "`viewstamp stream seal TOPIC STREAM --lost`" in finding.remedy
    passing = [founder("n1"), founder("n2", "leader"), founder("n3")]
    assert look(founder("n1"), founder("n2"), founder("n3"), earlier=passing) == []


def test_a_group_in_which_a_node_takes_no_part_is_reported_with_the_reason() -> None:
    refused = node("n3", placed=[placed(failure="no control file"), placed(id=9, failure="full")])
    others = founder("n1"), founder("n2", "leader")
    nine = node("n1", placed=[placed(id=9)], hosted=[part("leader", "n1", group=9), *founder("n1")["hosted"]])
    finding = only(look(nine, others[1], refused), "group_failed")
    assert finding.sentence == "n3 takes no part in group 7 (and 1 more): no control file"
    failed = founder("n3", failure="cannot write")
    assert only(look(*others, failed), "group_failed").sentence.endswith("in group 7: cannot write")


def test_a_group_that_waits_for_a_founder_is_reported() -> None:
    waiting = [node(name, placed=[placed(hosted=["n1"], is_established=False)]) for name in NAMES]
    finding = only(look(*waiting), "group_waiting")
    assert finding.sentence == ("group 7 (east) is placed, and not established: n2 and n3 did not create a directory")
    assert "`viewstamp group cancel 7`" in finding.remedy


def test_a_directory_of_a_group_that_a_node_does_not_use_is_reported() -> None:
    kept = node("n2", kept_directories=[{"group": 7, "reason": "it has records"}, {"group": 9, "reason": "too"}])
    finding = only(look(kept), "kept_directory")
    assert finding.sentence == ("n2 keeps the directory of group 7 (and 1 more), which it does not use: it has records")


def test_troubles_of_a_group_with_its_files_name_the_group() -> None:
    others = founder("n1", "leader"), founder("n2")
    full = founder("n3", full=["no space", "free space"])
    assert only(look(*others, full), "full").sentence == "n3 in group 7 rejects appends: no space"
    damaged = founder("n3", scrub={"damaged": ["/g/7/1.segment"]}, damaged_snapshots=["/s/1"], stuck_files={"/a": "b"})
    sentences = {each.code: each.sentence for each in look(*others, damaged)}
    assert sentences["damaged_snapshot"].startswith("a snapshot of n3 in group 7 is damaged")
    assert sentences["damaged_file"].startswith("n3 in group 7 found damage")
    assert sentences["stuck_files"].startswith("n3 in group 7 cannot delete")


def test_damaged_snapshot_is_reported() -> None:
    assert only(look(node("n2", damaged_snapshots=["/s/1"])), "damaged_snapshot").sentence.endswith(": /s/1")


def test_damaged_segment_is_reported_and_a_replaced_snapshot_is_not() -> None:
    assert look(node("n2", scrub={"damaged": ["/s/1.snapshot"]})) == []
    finding = only(look(node("n2", scrub={"damaged": ["/w/1.segment"]})), "damaged_file")
    assert finding.sentence.endswith("at its last check: /w/1.segment")


def test_actors_that_differ_at_the_same_index_are_reported() -> None:
    other = {"actors": {"stock": {"digest": "bb", "instances": 1}}}
    finding = only(look(node("n3", state=other)), "diverged")
    assert finding.sentence == "the state of actor stock differs at index 100: aa on n1, n2; bb on n3"


def test_clock_offset_is_reported_if_it_exceeds_the_time_that_asking_took() -> None:
    off = node("n3", clock_us=1_003_000_000)
    assert only(look(off, seconds=1.5), "clock").sentence.startswith("the clock of n3 is 3.0 s ahead of that of n2")
    assert look(off, seconds=2.5) == []


def clock(**fields: Any) -> dict[str, Any]:
    return {"offset_seconds": 0.0, "bound_seconds": 10.0, "ahead_seconds": 0.0, "is_alone": False, **fields}


def test_log_time_ahead_of_the_clocks_is_reported_with_its_end() -> None:
    finding = only(look(node("n1", clock=clock(ahead_seconds=7200.0))), "log_time")
    assert finding.sentence.startswith("the newest record is 2 h 0 min ahead of the clocks, as n1 reports")
    assert "in 4 h 0 min at the latest" in finding.sentence
    assert look(node("n1", clock=clock(ahead_seconds=9.0))) == [], "within the bound"
    assert look(node("n2", clock=clock(ahead_seconds=7200.0))) == [], "a follower's clock may be the one that is off"


def test_clock_jump_of_the_only_voter_is_reported() -> None:
    jumped = node("n1", clock=clock(offset_seconds=73 * 365 * 86_400.0, is_alone=True))
    assert only(look(jumped), "clock").sentence.startswith("the clock of n1 has jumped by 73 years 0 days while it ran")


def test_different_releases_are_reported() -> None:
    finding = only(look(node("n3", release="1.1")), "releases")
    assert finding.sentence == "the members run different releases: n1 and n2 run 1.0 and n3 runs 1.1"


def test_injected_faults_are_reported_with_the_command_that_ends_them() -> None:
    slow = node("n2", chaos=[{"fault": "slow-disk", "peers": [], "ms": 200, "until": 0}])
    finding = only(look(slow, where=" --dir d"), "chaos")
    assert (finding.node, finding.sentence) == ("n2", "faults are injected on purpose: n2: slow-disk by 200 ms")
    assert finding.remedy == "run `viewstamp chaos heal --dir d`"
    cut = node("n1", chaos=[{"fault": "partition", "peers": ["n2"], "ms": 0, "until": 0}])
    assert only(look(slow, cut), "chaos").sentence == (
        "faults are injected on purpose: n1: partition from n2; n2: slow-disk by 200 ms"
    )


def test_effect_of_an_injected_fault_has_the_remedy_chaos_heal() -> None:
    """A disk that is slow or full without an injected fault needs another remedy."""
    slow = {"chaos": [{"fault": "slow-disk", "peers": [], "ms": 900, "until": 0}], "write_ms": 901.0}
    full = {"chaos": [{"fault": "fill-disk", "peers": [], "ms": 0, "until": 0}], "log_bytes_left": 9}
    found = look(node("n2", **slow, log_bytes_left=9), node("n3", **full, write_ms=901.0))
    assert [(finding.code, finding.node) for finding in found] == [
        ("nearly_full", "n2"),
        ("nearly_full", "n3"),
        ("slow_disk", "n2"),
        ("slow_disk", "n3"),
        ("chaos", ""),
    ]
    assert [finding.remedy == "run `viewstamp chaos heal`" for finding in found] == [False, True, True, False, True]
    refused = node("n3", chaos=full["chaos"], full=["the log is full", "free space"])
    assert look(refused)[0].remedy == "run `viewstamp chaos heal`"


def test_member_with_a_new_disk_is_reported_by_its_node_name() -> None:
    reborn = "n2~0a1b2c3d"
    membership = {**MEMBERSHIP, "generation": 5, "learners": {reborn: ADDRESSES["n2"]}, "joining": {reborn: "n2"}}
    nodes = [node(name, membership=membership, connected=["n1", "n3", reborn]) for name in ("n1", "n3")]
    back = node("n2", member_id=reborn, membership=membership, connected=["n1", "n3"], durable_index=0, role="learner")
    finding = only(look(*nodes, back), "catching_up")
    assert finding.node == "n2"
    assert "becomes a voter in place of n2" in finding.sentence


@pytest.mark.parametrize(("days", "code"), [(-1, "certificate"), (0, "certificate"), (12, "certificate_ends")])
def test_certificate_is_reported_before_its_end_and_after_it(days: int, code: str) -> None:
    certificate = {"certificate": "/tls/n2.pem", "ends_us": 1_000_000_000 + days * 86_400_000_000, "trouble": ""}
    finding = only(look(node("n2", tls=certificate)), code)
    assert finding.node == "n2"
    assert "tls new --renew" in finding.remedy


def test_certificate_with_more_than_a_month_left_is_no_finding() -> None:
    certificate = {"certificate": "/tls/n2.pem", "ends_us": 31 * 86_400_000_000 + 1_000_000_000, "trouble": ""}
    assert look(node("n2", tls=certificate)) == []


def test_new_certificate_that_is_not_used_is_reported() -> None:
    certificate = {"certificate": "/tls/n2.pem", "ends_us": 90 * 86_400_000_000, "trouble": "it is the one of n3"}
    finding = only(look(node("n2", tls=certificate)), "certificate_files")
    assert finding.sentence.endswith("goes on with the earlier one: it is the one of n3")


def test_insecure_network_is_reported() -> None:
    assert only(look(node("n2", insecure_network=True)), "insecure_network").node == "n2"


def test_nodes_that_show_only_what_everybody_may_see_are_not_called_healthy() -> None:
    strangers = [{**node(name), "commit_index": None} for name in NAMES]
    finding = only(look(*strangers), "no_token")
    assert (finding.node, finding.severity) == ("", "warning")
    starting = [{**node(name), "commit_index": None, "lifecycle": "bootstrapping"} for name in NAMES]
    assert "no_token" not in [each.code for each in look(*starting)]


def test_a_store_of_archived_records_that_cannot_be_used_is_reported() -> None:
    store = {"where": "s3://b", "trouble": "s3://b did not answer", "remedy": "wait", "is_current": True}
    finding = only(look(node("n2", archive=store)), "archive")
    assert (finding.node, finding.remedy, finding.severity) == ("n2", "wait", "error")
    assert finding.sentence.endswith("s3://b did not answer")
    assert look(node("n2", archive={**store, "trouble": ""})) == []


def test_a_store_that_is_away_is_one_finding_however_many_groups_it_keeps_from_archiving() -> None:
    trouble = "/mnt/runs is empty, or another store, because it has no file of run 7"
    rounds = {"state": "failing", "reason": f"n1 leads, and cannot go on with the archive: {trouble}"}
    store = {"where": "/mnt/runs", "trouble": trouble, "remedy": "mount it"}
    (finding,) = look(node("n1", archive=store, archiving=rounds, hosted=[{"group": 7, "archiving": rounds}]))
    assert finding.sentence == f"n1 cannot use the store of archived records: {trouble}"
    other = {**rounds, "reason": "n1 leads, and cannot go on with the archive: the disk is full"}
    only(look(node("n1", archive={**store, "trouble": ""}, archiving=other)), "not_archiving")


def test_every_code_is_documented_and_tested() -> None:
    page = OPERATING.partition("## The doctor\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    assert rows == list(CODES)
    tested = set(re.findall(r'"([a-z_]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert set(CODES) - tested == set()


@pytest.mark.parametrize("nodes", [[], [away("n1")], [{"id": None, "address": "h:1", "reachable": False}]])
def test_statuses_with_few_fields_are_accepted(nodes: list[dict[str, Any]]) -> None:
    found = findings(Report(nodes=summary(nodes, {})["nodes"]))
    assert [finding.code for finding in found][:1] == ["no_answer"]


def test_files_that_cannot_be_deleted_are_reported() -> None:
    finding = only(look(node("n2", stuck_files={"/s/1": "cannot remove /s/1: busy", "/s/2": "too"})), "stuck_files")
    assert finding.sentence.endswith("does not need: cannot remove /s/1: busy, and 1 more")
