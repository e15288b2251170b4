"""The state of groups beside group 0, as `group list` and `status` show it."""

from __future__ import annotations

from typing import Any

from viewstamp.doctor.groups import group_state, groups_line

MEMBERSHIP = {"generation": 4, "voters": {"n1~a": "a:1", "n2": "a:2", "n4": "a:4"}, "learners": {"n5": "a:5"}}
FOUNDERS = ("n1", "n2", "n3")


def node(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "reachable": True, "hosted": list(parts), "placed": [{"id": 7}]}


def away(name: str) -> dict[str, Any]:
    return {"id": name, "reachable": False}


def part(role: str, **fields: Any) -> dict[str, Any]:
    shown = {"group": 7, "failure": "", "role": role, "term": 3, "commit_index": 90, "membership": MEMBERSHIP}
    return {**shown, **fields}


def test_members_of_a_group_are_those_of_its_leader_without_those_that_do_not_answer_or_serve_it() -> None:
    old = {"generation": 1, "voters": dict.fromkeys(FOUNDERS, "a:1"), "learners": {}}
    nodes = [
        node("n1", part("leader", term=4, commit_index=100)),
        node("n2", part("leader", membership=old), part("leader", group=9, term=8)),
        node("n4", part("follower", failure="cannot write")),
        away("n5"),
    ]
    assert group_state(nodes, 7, FOUNDERS) == {
        "leader": "n1",
        "term": 4,
        "commit_index": 100,
        "members": ["n1", "n2", "n4", "n5"],
        "answering": ["n1", "n2"],
    }


def test_a_group_without_a_leader_has_the_members_of_the_newest_membership() -> None:
    old = {"generation": 1, "voters": dict.fromkeys(FOUNDERS, "a:1"), "learners": {}}
    state = group_state([node("n1", part("candidate", term=5)), node("n2", part("follower", membership=old))], 7, ())
    assert (state["leader"], state["term"], state["members"]) == (None, 5, ["n1", "n2", "n4", "n5"])


def test_a_group_that_no_node_serves_has_its_founders_as_members() -> None:
    opening = {"group": 7, "failure": ""}
    for nodes in ([node("n1")], [away("n1")]):
        nothing = {"leader": None, "term": None, "commit_index": None, "members": list(FOUNDERS), "answering": []}
        assert group_state(nodes, 7, FOUNDERS) == nothing
    assert group_state([node("n1", opening)], 7, FOUNDERS)["term"] is None


def test_the_line_of_a_status_names_groups_without_a_leader() -> None:
    assert groups_line([{"id": "n1", "reachable": True}, away("n2")]) == ""
    assert groups_line([node("n1", part("leader"))]).startswith("1 group, each with a leader: ")
    nodes = [node("n1", part("follower")), away("n2")]
    assert groups_line(nodes).startswith("1 group, 1 without a leader (7): ")
