from __future__ import annotations

import random

from viewstamp.client.routing import Addresses, LeaderFinder
from viewstamp.errors import FrameError, NotLeaderError, PeerError, UnavailableError


def search(*addresses: str, seed: int = 1) -> LeaderFinder:
    return LeaderFinder(Addresses(addresses), entropy=random.Random(seed), back_off=(0.01, 0.5))


def redirect(address: str | None) -> NotLeaderError:
    return NotLeaderError("elsewhere", address=address)


def test_all_addresses_are_tried_in_turn() -> None:
    nodes = search("a:1", "b:1", "c:1")
    assert sorted(nodes.next_address() for _ in range(3)) == ["a:1", "b:1", "c:1"]


def test_a_hint_is_followed_at_once_and_its_address_is_remembered() -> None:
    nodes = search("a:1")
    nodes.failed("a:1", redirect("b:1"))
    assert nodes.delay() == 0
    assert nodes.next_address() == "b:1"
    assert nodes.addresses.all == ["a:1", "b:1"]


def test_two_nodes_that_name_each_other_do_not_keep_a_client_running() -> None:
    nodes = search("a:1", "b:1")
    delays = []
    for _ in range(10):
        for node, other in (("a:1", "b:1"), ("b:1", "a:1")):
            nodes.failed(node, redirect(other))
            delays.append(nodes.delay())
            nodes.next_address()
    waits = [delay for delay in delays if delay]
    assert len(waits) >= 5
    assert waits[-1] > waits[0]


def test_a_dead_leader_is_not_visited_each_time_a_follower_names_it() -> None:
    nodes = search("a:1", "b:1", "c:1")
    nodes.failed("a:1", UnavailableError("refused"), is_away=True)
    visits = []
    for _ in range(12):
        address = nodes.next_address()
        visits.append(address)
        error = UnavailableError("refused") if address == "a:1" else redirect("a:1")
        nodes.failed(address, error, is_away=address == "a:1")
    assert visits.count("a:1") <= 5


def test_the_wait_grows_to_its_limit_and_starts_again_after_a_success() -> None:
    nodes = search("a:1")
    delays = []
    for _ in range(200):
        nodes.failed("a:1", UnavailableError("refused"))
        delays.append(nodes.delay())
    assert delays[0] == 0
    assert 0.005 <= delays[1] <= 0.03
    assert all(0.25 <= delay <= 0.5 for delay in delays[20:])
    nodes.succeeded()
    nodes.failed("a:1", UnavailableError("refused"))
    assert nodes.delay() == 0


def test_an_unreachable_address_does_not_delay_the_others_of_the_round() -> None:
    """Otherwise no other address is tried during the attempt at the dead leader, which delays the search."""
    nodes = search("a:1", "b:1", "c:1")
    nodes.failed("x:1", UnavailableError("lost"))
    delays = []
    for _ in range(9):
        address = nodes.next_address()
        nodes.failed(address, UnavailableError("refused"), is_away=True)
        delays.append(nodes.delay())
    assert [delay > 0 for delay in delays] == [False, False, True] * 3, "one wait a round where all are away"


def test_a_leader_that_was_elected_is_found_soon_however_long_that_took() -> None:
    """Each wait is a fraction of the search time so far, so there are few waits, and none is long."""
    nodes = search("a:1", "b:1", "c:1")
    elapsed = 0.0
    asked = 0
    while elapsed < 1.0:
        nodes.failed(nodes.next_address(), NotLeaderError("no leader at present"))
        delay = nodes.delay()
        assert delay <= 0.01 + elapsed / 2
        elapsed += delay
        asked += 1
    assert asked < 25


def test_only_when_strangers_answer_everywhere_is_the_search_hopeless() -> None:
    nodes = search("a:1", "b:1")
    nodes.failed("a:1", FrameError("garbage"))
    assert nodes.strangers is None
    nodes.failed("b:1", PeerError("version 9"))
    assert isinstance(nodes.strangers, PeerError)
    nodes.failed("a:1", UnavailableError("refused"))
    assert nodes.strangers is None


def test_members_are_tried_before_addresses_where_none_is_any_more_and_those_are_tried_too() -> None:
    """The current members are tried first, and then the addresses that the caller named, even those of no member.

    The list of members may come from a node that was removed long ago. So an address of the caller is never dropped.
    """
    nodes = search("a:1", "b:1")
    nodes.addresses.learn({"n2": "b:1", "n3": "c:1"}, 3)
    tried = [nodes.next_address() for _ in range(3)]
    assert sorted(tried[:2]) == ["b:1", "c:1"]
    assert tried[2] == "a:1"


def test_a_newer_membership_is_tried_at_once() -> None:
    nodes = search("a:1", "b:1", "c:1")
    nodes.next_address()
    nodes.addresses.learn({"n4": "d:1"}, 3)
    assert nodes.next_address() == "d:1"
