from __future__ import annotations

from viewstamp.client.routing import Addresses


def test_given_addresses_stay_and_only_the_newest_membership_is_kept() -> None:
    addresses = Addresses(["a:1", "b:1", "a:1"])
    addresses.learn({"n1": "a:1", "n3": "c:1"}, 4)
    assert addresses.all == ["a:1", "b:1", "c:1"]
    addresses.learn({"n4": "d:1"}, 5)
    assert addresses.all == ["a:1", "b:1", "d:1"]


def test_an_older_membership_neither_removes_nor_adds_addresses() -> None:
    addresses = Addresses(["a:1"])
    addresses.learn({"n2": "b:1"}, 4)
    addresses.learn({"n9": "z:1"}, 3)
    assert addresses.all == ["a:1", "b:1"]


def test_two_memberships_of_the_same_age_are_put_together() -> None:
    """One of them may never have been committed, and the client cannot determine which."""
    addresses = Addresses(["a:1"])
    addresses.learn({"n2": "b:1"}, 4)
    addresses.learn({"n3": "c:1"}, 4)
    assert addresses.all == ["a:1", "b:1", "c:1"]


def test_the_number_of_learnt_addresses_is_bounded() -> None:
    addresses = Addresses(["a:1"])
    for n in range(1000):
        addresses.learn({f"n{n}": f"b:{n}"}, 0)
    addresses.learn({f"n{n}": f"c:{n}" for n in range(1000)}, 0)
    assert len(addresses.all) == 65


def test_a_member_that_is_known_by_another_address_is_a_member() -> None:
    addresses = Addresses(["localhost:1", "localhost:9"])
    assert addresses.is_member("localhost:9")
    addresses.learn({"n1": "10.0.0.1:1", "n2~0a1b2c3d": "10.0.0.2:1"}, 1)
    addresses.meet("localhost:1", "n1")
    addresses.meet("localhost:9", "n9")
    assert [address for address in addresses.all if addresses.is_member(address)] == [
        "localhost:1",
        "10.0.0.1:1",
        "10.0.0.2:1",
    ]
    assert addresses.of("n2")[0] == "10.0.0.2:1"
    assert addresses.of("n1")[:2] == ["localhost:1", "10.0.0.1:1"]
    assert sorted(addresses.of("n7")) == sorted(addresses.all)
