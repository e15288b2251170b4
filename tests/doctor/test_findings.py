"""What the doctor says: each trouble by its code, in one sentence, and nothing where all is well."""

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
from viewstamp.doctor.status import summary
from viewstamp.ids import NodeId

MIB = 1024 * 1024
NAMES = ("n1", "n2", "n3")
ADDRESSES = {f"n{number}": f"127.0.0.1:{number}" for number in range(1, 6)}
ADDRESSES_OF_THREE = {name: ADDRESSES[name] for name in NAMES}
MEMBERSHIP = {"generation": 1, "voters": ADDRESSES_OF_THREE, "learners": {}}
OPERATING = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")


def node(name: str, **fields: Any) -> dict[str, Any]:
    """Return what a healthy member says; n1 leads."""
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
    """Look at a cluster of three in which some nodes say something else."""
    return findings(report(*changed, earlier=earlier, **fields))


def report(*changed: dict[str, Any], earlier: Sequence[dict[str, Any]] = (), **fields: Any) -> Report:
    nodes = {name: node(name) for name in NAMES} | {each["id"]: each for each in changed}
    before = {name: node(name) for name in NAMES} | {each["id"]: each for each in earlier}
    told = [summary(list(each.values()), {})["nodes"] for each in (nodes, before)]
    return Report(nodes=told[0], earlier=told[1] if earlier else (), **fields)


def only(found: list[Finding], code: str) -> Finding:
    assert [finding.code for finding in found] == [code]
    return found[0]


def leaderless(*changed: dict[str, Any], **fields: Any) -> list[Finding]:
    return look(*({**each, "role": "candidate"} if each.get("role") else each for each in changed), **fields)


def test_all_is_well_without_a_finding() -> None:
    assert look() == []
    assert look(earlier=[node("n2")]) == []


def test_where_no_node_answers_that_is_said_and_how_to_start_them() -> None:
    found = look(*map(away, NAMES), processes=dict.fromkeys(NAMES, ProcessReport()), where=" --dir d")
    assert [finding.code for finding in found] == ["no_answer", "down", "down", "down"]
    assert "n1 at 127.0.0.1:1, n2 at 127.0.0.1:2" in found[0].sentence
    assert found[0].remedy == "viewstamp cluster start --dir d"
    assert found[1].sentence == "n1 is not running"


MOVED = ProcessReport(error="the membership has n3 at 127.0.0.1:3, but ...", is_moved=True, address="127.0.0.1:13")


def test_a_voter_that_was_moved_is_named_with_both_addresses_and_the_command_that_moves_it() -> None:
    processes = {**dict.fromkeys(("n1", "n2"), ProcessReport(1)), "n3": MOVED}
    found = only(look(away("n3"), processes=processes, where=" --dir d"), "moved")
    assert found.sentence == (
        "the membership has n3 at 127.0.0.1:3, but its settings say 127.0.0.1:13; the others go on, and stop when one "
        "more does"
    )
    assert found.remedy.startswith("where it was moved: viewstamp members add n3 --dir d, which starts it there; else")
    running = {**processes, "n3": ProcessReport(7, address="127.0.0.1:13")}
    assert only(look(away("n3"), processes=running), "moved").sentence == found.sentence


def test_where_all_have_moved_the_old_addresses_are_to_be_put_back() -> None:
    found = look(*map(away, NAMES), processes=dict.fromkeys(NAMES, MOVED), where=" --dir d")
    assert [finding.code for finding in found] == ["no_answer", "moved", "moved", "moved"]
    assert found[0].remedy == (
        "put the old addresses of n1, n2 and n3 back into their settings, then viewstamp cluster start --dir d"
    )
    assert "members add" not in found[1].remedy
    assert found[1].severity == "error"


def test_nobody_leads_because_too_few_are_up_and_each_of_the_others_is_named_with_its_reason() -> None:
    found = leaderless(away("n1"), node("n2", silent_until=[3, 90]))
    assert [finding.code for finding in found] == ["no_leader", "down", "silent"]
    assert found[0].sentence == (
        "nobody leads, because of the voters n1, n2 and n3 only n3 can vote, and it takes 2: n1 is down and n2 is "
        "silent until it is repaired; appends and reads wait"
    )
    assert found[0].remedy.startswith("bring back 1 of n1: ")
    assert found[1].sentence.endswith("; without it there is no majority")


def test_where_a_majority_has_lost_what_it_had_nobody_is_told_to_start_what_runs() -> None:
    found = leaderless(*(node(name, silent_until=[3, 90]) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "silent", "silent", "silent"]
    assert "n2 and n3 none can vote, and it takes 2" in found[0].sentence
    assert found[0].remedy.startswith("nobody makes up what a majority has lost")


def repairing(name: str, *, waits: bool) -> dict[str, Any]:
    """Return what a member says that has replayed nothing yet: it does not name the members either."""
    sentence = f"{name} is repairing, and no other member can give it the records from index 5 to 8: n9: refused"
    repair = {"sentence": sentence, "from": "n9", "bytes": 7, "bytes_total": 9, "waits": waits, "ranges": [[5, 9]]}
    return {
        "id": name,
        "address": ADDRESSES[name],
        "reachable": True,
        "lifecycle": "bootstrapping",
        "repair": repair,
    }


def test_where_all_repair_themselves_that_is_why_nobody_leads() -> None:
    found = look(*(repairing(name, waits=False) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "repairing", "repairing", "repairing"]
    assert found[0].sentence == (
        "nobody leads, because of the nodes n1, n2 and n3 none can vote, and it takes 2: n1 is repairing its log, n2 "
        "is repairing its log and n3 is repairing its log; appends and reads wait"
    )
    assert found[0].remedy == "wait: n1, n2 and n3 will take part by themselves"
    assert found[1].remedy == "wait; it goes on by itself"


def test_who_asks_in_vain_is_told_to_be_given_those_back_that_are_away() -> None:
    found = look(away("n1"), repairing("n2", waits=True), repairing("n3", waits=True))
    assert [finding.code for finding in found] == ["no_leader", "down", "repairing", "repairing"]
    assert "n2 asks in vain for what its log has lost and n3 asks in vain" in found[0].sentence
    assert found[0].remedy.startswith("bring back n1, where what n2 and n3 lost may still be: ")
    assert "no other member can give it the records" in found[2].sentence
    assert found[2].remedy.startswith("bring back n1, where it may still be: ")


def test_what_nobody_has_any_more_is_not_waited_for_in_vain() -> None:
    found = look(*(repairing(name, waits=True) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "repairing", "repairing", "repairing"]
    assert all(finding.remedy.startswith("nobody makes up what a majority has lost") for finding in found)


def test_nobody_leads_because_nobody_hears_a_majority() -> None:
    found = leaderless(*(node(name, connected=[]) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "unheard", "unheard"]
    assert (
        "no member and a majority of the voters hear each other: n1 hears nobody; n2 hears nobody" in found[0].sentence
    )
    assert "mend the network" in found[0].remedy


def test_nobody_leads_because_nobody_has_room_for_what_a_leader_writes() -> None:
    full = ["the log is full", "free space"]
    found = leaderless(*(node(name, full=full if name != "n3" else None) for name in NAMES))
    assert [finding.code for finding in found] == ["no_leader", "full", "full"]
    assert "n1 and n2 have no room" in found[0].sentence


def test_nobody_leads_because_an_election_is_under_way() -> None:
    finding = only(leaderless(*map(node, NAMES)), "no_leader")
    assert "an election is under way (term 3)" in finding.sentence


def test_a_leader_of_an_older_term_is_none() -> None:
    assert look(node("n2", term=4))[0].code == "no_leader"


def test_a_change_of_members_that_waits_for_a_majority_of_those_after_it_says_for_whom() -> None:
    joint = {**MEMBERSHIP, "generation": 2, "outgoing": ADDRESSES_OF_THREE, "voters": {"n1": "a", "n2": "b"}}
    nodes = [node("n1", membership=joint), away("n2"), node("n3", membership=joint)]
    finding = look(*nodes)[0]
    assert finding.code == "change_stuck"
    assert "it needs a majority of the new voters n1 and n2, and n2 is down" in finding.sentence
    assert look(node("n1", membership=joint)) == []


def test_a_node_that_is_down_says_what_it_died_of_and_what_its_absence_costs() -> None:
    dead = ProcessReport(error="n2/wal is damaged at byte 7", remedy="put it back")
    finding = only(look(away("n2"), processes={"n2": dead}), "down")
    assert finding.sentence == (
        "n2 is not running: n2/wal is damaged at byte 7; the others go on, and stop when one more does"
    )
    assert finding.remedy == "put it back"
    stopped = only(look(away("n2"), processes={"n2": ProcessReport()}), "down")
    assert stopped.remedy == "viewstamp cluster restart n2"
    elsewhere = only(look(away("n2", error="no route")), "down")
    assert elsewhere.sentence.startswith("n2 does not answer at 127.0.0.1:2: no route")
    assert "viewstamp node run --config" in elsewhere.remedy


def test_a_process_that_is_paused_and_one_that_hangs_are_told_apart() -> None:
    paused = only(look(away("n3"), processes={"n3": ProcessReport(77, is_paused=True)}), "paused")
    assert "kill -CONT 77" in paused.remedy
    hung = only(look(away("n3"), processes={"n3": ProcessReport(77)}), "hung")
    assert hung.sentence.startswith("n3 (process 77) runs and does not answer: refused; the others go on")


def test_somebody_elses_node_at_an_address_is_named() -> None:
    stranger = away("n3", error="127.0.0.1:3 belongs to cluster d", error_class="WrongClusterError")
    assert "belongs to cluster d" in only(look(stranger), "wrong_cluster").sentence


def test_a_node_that_the_others_refuse_says_why() -> None:
    refused = node("n2", refused_by={"n1": "n2 came back with another disk", "n3": "n2 came back with another disk"})
    finding = only(look(refused), "refused")
    assert finding.sentence == "n2 is refused by n1 and n3: n2 came back with another disk"


def test_a_repair_says_how_much_comes_from_whom() -> None:
    repair = {
        "sentence": "n2 is repairing: ...",
        "from": "n3",
        "bytes": 3 * MIB,
        "bytes_total": 14 * MIB,
        "ranges": [[5, 9]],
    }
    finding = only(look(node("n2", lifecycle="bootstrapping", repair=repair)), "repairing")
    assert finding.sentence == "n2 is repairing 14.0 MiB of its log from n3: 3.0 MiB are there"
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
    assert everybody[0].sentence.startswith("nobody leads, because an election is under way")


STATES: dict[str, dict[str, Any]] = {
    "well": {},
    "silent": {"silent_until": [3, 91]},
    "lost power": {"silent_until": [3, 1 << 62], "lost_power": True},
    "away": {"reachable": False},
}
"""What a voter may be like, and how its status says so."""


@pytest.mark.parametrize("outgoing", [(), ("n1", "n2", "n4", "n5")], ids=["simple", "joint"])
def test_the_doctor_misses_voters_exactly_where_the_core_would_elect_nobody(outgoing: tuple[str, ...]) -> None:
    """Its own arithmetic did not know that voters which lost power count where every voter is there."""
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
            continue  # Nobody answers, so nobody says who votes.
        votes = [NodeId(name) for name, state in zip(names, states, strict=True) if state in ("well", "lost power")]
        recovering = [NodeId(name) for name, state in zip(names, states, strict=True) if state == "lost power"]
        told = next(each for each in findings(Report(nodes=summary(nodes, {})["nodes"])) if each.code == "no_leader")
        is_short = "and it takes" in told.sentence
        assert is_short != wins(group, votes, recovering, has_waited=False), (states, told.sentence)


def test_a_node_that_is_silent_says_until_when() -> None:
    assert only(look(node("n2", silent_until=[3, 91])), "silent").sentence.endswith("what it had up to index 90")
    assert only(look(node("n2", silent_until=[3, 1 << 62])), "silent").sentence.endswith("again what it had")


def test_a_node_that_reads_its_log_is_starting() -> None:
    starting = {
        "id": "n2",
        "address": ADDRESSES["n2"],
        "reachable": True,
        "lifecycle": "bootstrapping",
        "release": "1.0",
    }
    assert only(look(starting), "starting").node == "n2"


def test_a_pair_that_does_not_hear_each_other_is_told_once_and_of_the_one_that_lost_more() -> None:
    found = look(node("n1", connected=["n3"]), node("n2", connected=[], role="candidate"), node("n3", connected=["n1"]))
    finding = only(found, "unheard")
    assert finding.sentence == "neither n2 nor n1 and n3 can reach the other side, although both run"


def test_one_direction_alone_is_told_as_such() -> None:
    found = look(node("n2", connected=["n3"]))
    assert only(found, "unheard").sentence == "n1 cannot hear n2, which hears it"


def test_a_learner_that_joins_says_how_far_it_is_and_in_whose_place() -> None:
    membership = {**MEMBERSHIP, "generation": 2, "learners": {"n4": ADDRESSES["n4"]}, "joining": {"n4": "n2"}}
    nodes = [node(name, membership=membership, connected=[*NAMES, "n4"]) for name in NAMES]
    learner = node("n4", membership=membership, connected=NAMES, durable_index=40, role="learner")
    finding = only(look(*nodes, learner), "catching_up")
    assert finding.sentence.endswith("in the place of n2 when it has caught up: it has 40 of 100 records of the log")
    fetching = {**learner, "fetching_snapshot": {"from": "n1", "index": 9, "bytes": MIB, "size": 4 * MIB}}
    assert only(look(*nodes, fetching), "catching_up").sentence.endswith("a snapshot, 1.0 MiB of 4.0 MiB")


def test_a_member_is_behind_when_it_lacks_what_was_committed_a_moment_before() -> None:
    late = node("n3", durable_index=60)
    assert look(late) == []
    assert look(late, earlier=[node("n1", commit_index=60)]) == []
    finding = only(look(late, earlier=[node("n1", commit_index=61)]), "behind")
    assert finding.sentence == "n3 is behind: it has 60 of 100 records of the log"


def test_a_node_that_runs_and_is_no_member_is_to_be_stopped() -> None:
    stranger = node("n4", role="follower")
    assert "stop it, or make it one" in only(look(stranger), "no_member").remedy
    finding = only(look(stranger, processes={"n4": ProcessReport(5), "n1": ProcessReport(1)}), "no_member")
    assert finding.remedy == "viewstamp members remove n4 stops it"


def test_an_address_that_is_no_members_is_to_be_left_out() -> None:
    nobody = {"id": None, "address": "127.0.0.1:9", "reachable": False, "error": "refused"}
    finding = only(look(nobody), "no_member")
    assert finding.sentence == "no member listens at 127.0.0.1:9, which is named as an address of the cluster"


def test_a_node_that_takes_nothing_any_more_says_why_and_what_makes_room() -> None:
    full = {"full": ["the log is full: 0 bytes", "trim topic orders"]}
    finding = only(look(node("n2", **full)), "full")
    assert finding.sentence == "n2 takes no appends: the log is full: 0 bytes"
    assert finding.remedy == "trim topic orders"
    leading = only(look(node("n1", **full)), "full")
    assert leading.remedy == "viewstamp leader transfer: one that has room leads then; trim topic orders"


def test_a_log_and_a_disk_that_are_nearly_full_are_told_before_they_are() -> None:
    log = only(look(node("n2", log_bytes=60 * MIB, log_bytes_max=64 * MIB)), "nearly_full")
    assert log.sentence == "the log of n2 is 94% full: 60.0 MiB of 64.0 MiB"
    disk = only(look(node("n2", log_bytes_left=5 * MIB)), "nearly_full")
    assert disk.sentence == "the disk of n2 has no room for another segment: its log takes 5.0 MiB more"


def test_a_node_that_cannot_write_its_log_messages_says_so() -> None:
    failing = node("n2", log_stream_failure="OSError: [Errno 28] No space left on device", log_lines_lost=1200)
    sentence = only(look(failing), "log_stream").sentence
    assert "No space left on device" in sentence
    assert "1,200 lines are lost" in sentence


def test_a_slow_disk_and_a_slow_loop_are_told_apart() -> None:
    assert "took 400 ms for a write" in only(look(node("n2", write_ms=400.0)), "slow_disk").sentence
    # What is late because the loop is, is no fault of the disk.
    assert "was 700 ms late" in only(look(node("n2", loop_lag_ms=700.0, write_ms=650.0)), "slow_loop").sentence


def test_a_snapshot_that_is_damaged_is_named() -> None:
    assert only(look(node("n2", damaged_snapshots=["/s/1"])), "damaged_snapshot").sentence.endswith(": /s/1")


def test_a_file_that_is_damaged_and_was_not_mended_is_named() -> None:
    assert look(node("n2", scrub={"damaged": ["/s/1.snapshot"]})) == []
    finding = only(look(node("n2", scrub={"damaged": ["/w/1.segment"]})), "damaged_file")
    assert finding.sentence.endswith("when it last looked: /w/1.segment")


def test_actors_that_differ_at_the_same_index_are_told() -> None:
    other = {"actors": {"stock": {"digest": "bb", "instances": 1}}}
    finding = only(look(node("n3", state=other)), "diverged")
    assert finding.sentence == "actor stock is not the same everywhere at index 100: aa on n1, n2; bb on n3"


def test_a_clock_that_is_off_by_more_than_asking_took_is_told() -> None:
    off = node("n3", clock_us=1_003_000_000)
    assert only(look(off, seconds=1.5), "clock").sentence.startswith("the clock of n3 is 3.0 s ahead of that of n2")
    assert look(off, seconds=2.5) == []


def clock(**fields: Any) -> dict[str, Any]:
    return {"offset_seconds": 0.0, "bound_seconds": 10.0, "ahead_seconds": 0.0, "is_alone": False, **fields}


def test_log_time_that_is_ahead_of_the_clocks_is_reported_and_when_that_is_over() -> None:
    finding = only(look(node("n1", clock=clock(ahead_seconds=7200.0))), "log_time")
    assert finding.sentence.startswith("the newest record is 2 h 0 min ahead of the clocks, by n1")
    assert "in 4 h 0 min at the latest" in finding.sentence
    assert look(node("n1", clock=clock(ahead_seconds=9.0))) == [], "within the bound"
    assert look(node("n2", clock=clock(ahead_seconds=7200.0))) == [], "a follower's clock may be the one that is off"


def test_the_clock_of_an_only_voter_that_jumped_is_reported() -> None:
    jumped = node("n1", clock=clock(offset_seconds=73 * 365 * 86_400.0, is_alone=True))
    assert only(look(jumped), "clock").sentence.startswith("the clock of n1 has jumped by 73 years 0 days while it ran")


def test_different_releases_are_told() -> None:
    finding = only(look(node("n3", release="1.1")), "releases")
    assert finding.sentence == "the members run different releases: n1 and n2 run 1.0 and n3 runs 1.1"


def test_what_is_done_on_purpose_is_told_and_how_to_end_it() -> None:
    slow = node("n2", chaos=[{"fault": "slow-disk", "peers": [], "ms": 200, "until": 0}])
    finding = only(look(slow, where=" --dir d"), "chaos")
    assert (finding.node, finding.sentence) == ("n2", "faults are made on purpose: n2: slow-disk by 200 ms")
    assert finding.remedy == "viewstamp chaos heal --dir d"
    cut = node("n1", chaos=[{"fault": "partition", "peers": ["n2"], "ms": 0, "until": 0}])
    assert only(look(slow, cut), "chaos").sentence == (
        "faults are made on purpose: n1: partition from n2; n2: slow-disk by 200 ms"
    )


def test_what_a_fault_on_purpose_does_is_ended_by_ending_that_fault_and_no_other() -> None:
    """Of the node that suffers it: what is slow or full without it needs another remedy."""
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
    assert [finding.remedy == "viewstamp chaos heal" for finding in found] == [False, True, True, False, True]
    refused = node("n3", chaos=full["chaos"], full=["the log is full", "let go of something"])
    assert look(refused)[0].remedy == "viewstamp chaos heal"


def test_a_member_that_came_back_with_another_disk_is_known_by_its_name() -> None:
    reborn = "n2~0a1b2c3d"
    membership = {**MEMBERSHIP, "generation": 5, "learners": {reborn: ADDRESSES["n2"]}, "joining": {reborn: "n2"}}
    nodes = [node(name, membership=membership, connected=["n1", "n3", reborn]) for name in ("n1", "n3")]
    back = node("n2", member_id=reborn, membership=membership, connected=["n1", "n3"], durable_index=0, role="learner")
    finding = only(look(*nodes, back), "catching_up")
    assert finding.node == "n2"
    assert "becomes a voter in the place of n2" in finding.sentence


def test_every_code_has_a_row_on_the_page_and_is_tested_here() -> None:
    page = OPERATING.partition("## The doctor\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    assert rows == list(CODES)
    tested = set(re.findall(r'"([a-z_]+)"', Path(__file__).read_text(encoding="utf-8")))
    assert set(CODES) - tested == set()


@pytest.mark.parametrize("nodes", [[], [away("n1")], [{"id": None, "address": "h:1", "reachable": False}]])
def test_little_that_is_known_is_no_reason_to_fail(nodes: list[dict[str, Any]]) -> None:
    found = findings(Report(nodes=summary(nodes, {})["nodes"]))
    assert [finding.code for finding in found][:1] == ["no_answer"]


def test_files_that_cannot_be_removed_are_named() -> None:
    finding = only(look(node("n2", stuck_files={"/s/1": "cannot remove /s/1: busy", "/s/2": "too"})), "stuck_files")
    assert finding.sentence.endswith("does not need: cannot remove /s/1: busy, and 1 more")
