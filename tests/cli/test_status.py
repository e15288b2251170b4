"""What the nodes say, put together."""

from __future__ import annotations

from typing import Any

from viewstamp.cli.status import KEYS, summary


def node(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "address": f"127.0.0.1:{name[1:]}", "reachable": True, "cluster_id": "c", **fields}


def test_the_leader_is_the_one_of_the_highest_term() -> None:
    statuses = [
        node("n1", role="leader", term=3),
        node("n2", role="leader", term=4),
        node("n3", role="follower", term=4),
    ]
    result = summary(statuses, {})
    assert (result["leader"], result["term"], result["cluster_id"]) == ("n2", 4, "c")


def test_a_leader_of_an_older_term_than_another_node_has_seen_is_none() -> None:
    result = summary([node("n1", role="leader", term=3), node("n2", role="candidate", term=4)], {})
    assert result["leader"] is None


def test_a_node_that_does_not_answer_has_a_name_and_every_key() -> None:
    statuses = [node("n10", role="follower", term=1), {"address": "127.0.0.1:2", "reachable": False}]
    result = summary(statuses, {"127.0.0.1:2": "n2"})
    assert [each["id"] for each in result["nodes"]] == ["n2", "n10"]
    away = result["nodes"][0]
    assert set(KEYS) <= set(away)
    assert (away["reachable"], away["role"]) == (False, None)
