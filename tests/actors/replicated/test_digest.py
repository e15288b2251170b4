"""The chain is equal on members that agree; otherwise it differs from the first differing command on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.actors.replicated.calls import Call, apply, batch_of, pieces_of
from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command
from viewstamp.actors.replicated.digest import CREDIT, TRAIL_MAX


class Box(ReplicatedActor):
    """A test can make a member err, like a bug, a broken machine or an unseeded random number."""

    errs: Any = None

    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        self.padding = b""

    @command
    def put(self, name: str, n: int) -> int:
        self.items[name] = n
        if self.errs == "state" and n == 13:
            self.items[name] = 14
        return n + (self.errs == "result" and n == 13)

    @command
    def grow(self, size: int) -> None:
        self.padding = bytes(size)

    @command
    def drop(self, name: str) -> None:
        del self.items[name]


class NewerBox(Box):
    """The next release: another version, and another form of the same state."""

    version = 2

    def get_state(self) -> Any:
        return [self.items, self.padding]

    def set_state(self, state: Any, version: int) -> None:
        self.items, self.padding = (state["items"], state["padding"]) if version == 1 else state


CALLS = [("box", f"k{n % 3}", "put", f"i{n % 5}", n) for n in range(30)]


def member(cls: type[Box] = Box, **attributes: Any) -> ActorHost:
    return ActorHost({"box": type("Box", (cls,), attributes), "other": Box})


def restored(host: ActorHost, cls: type[Box] = Box) -> ActorHost:
    copy = member(cls)
    copy.adopt(copy.prepare(iter(pieces_of(host, 100))))
    return copy


def run(host: ActorHost, first: int, calls: list[Call], size: int = 4, version: int = 1) -> None:
    for start in range(0, len(calls), size):
        apply(host, first + start, *calls[start : start + size], version=version)


def differing(one: ActorHost, two: ActorHost) -> list[int]:
    return [index for (index, a), (_, b) in zip(one.trail, two.trail, strict=True) if a != b]


def test_members_that_agree_have_equal_chains_and_trails() -> None:
    one, two = member(), member()
    run(one, 1, CALLS)
    run(two, 1, CALLS)
    assert (one.chain, one.lineage, one.digest(), list(one.trail)) == (
        two.chain,
        two.lineage,
        two.digest(),
        list(two.trail),
    )
    assert [index for index, _ in one.trail] == list(range(1, 31))


@pytest.mark.parametrize("errs", ["result", "state"])
def test_the_first_command_that_differed_is_found_and_named(errs: str) -> None:
    one, two = member(), member(errs=errs)
    run(one, 1, CALLS)
    run(two, 1, CALLS)
    assert one.chain != two.chain
    assert differing(one, two)[0] == 14
    assert one.describe_index(14) == "box['k1'].put('i3', 13)"
    assert one.list()[0]["digest"] != two.list()[0]["digest"]


def test_the_other_actors_digest_does_not_suffer() -> None:
    one, two = member(), member(errs="state")
    for host in (one, two):
        run(host, 1, [("other", "", "put", "a", 13), *CALLS])
    assert one.list()[1]["digest"] == two.list()[1]["digest"]


def test_chains_distinguish_batches_by_their_logged_contents() -> None:
    """Index, time and arguments count, even if the results are equal."""
    chains = set()
    for batch in (
        batch_of(1, ("box", "", "put", "a", 1)),
        batch_of(2, ("box", "", "put", "a", 1)),
        batch_of(1, ("box", "", "put", "a", 1), log_time=5),
        batch_of(1, ("box", "", "put", "b", 1)),
        batch_of(1, ("box", "k", "put", "a", 1)),
    ):
        host = member()
        run(host, 100, [("box", "", "put", "z", 0)])  # so that the era of the first version has begun
        host.apply(batch, host.decode(batch))
        chains.add(host.chain)
    assert len(chains) == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=20), st.data())
@settings(max_examples=30)
def test_a_restored_member_continues_with_the_identical_chain(
    calls: list[tuple[str, int]], data: st.DataObject
) -> None:
    one = member()
    every: list[Call] = [("box", key, "put", key, n) for key, n in calls]
    cut_at = data.draw(st.integers(0, len(every)))
    run(one, 1, every[:cut_at], size=3)
    two = restored(one)
    assert (one.chain, one.lineage) == (two.chain, two.lineage)
    run(one, 1 + cut_at, every[cut_at:], size=3)
    run(two, 1 + cut_at, every[cut_at:], size=3)
    assert (one.chain, one.lineage, one.digest()) == (two.chain, two.lineage, two.digest())
    assert one.list() == two.list()


def count_packings(host: ActorHost, calls: list[Call], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often states are packed while the calls run one by one, counted in the class's ``get_state``."""
    packings = 0

    def get_state(self: Box) -> Any:
        nonlocal packings
        packings += 1
        return [self.items, self.padding]

    monkeypatch.setattr(Box, "get_state", get_state)
    host = ActorHost({"box": Box})
    for index, call in enumerate(calls, 1):
        apply(host, index, call)
    return packings


def test_a_small_state_is_digested_after_each_command_and_a_large_one_when_it_has_earned_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    puts: list[Call] = [("box", "", "put", "a", 1)] * 40
    assert count_packings(member(), puts, monkeypatch) == 40
    # The growth itself is digested, because the state was small before; after that, every ten commands.
    size = 10 * CREDIT
    assert count_packings(member(), [("box", "", "grow", size - 50), *puts], monkeypatch) == 1 + 4


@pytest.mark.slow
def test_the_trail_is_bounded() -> None:
    host = member()
    run(host, 1, [("box", "", "put", "a", 1)] * (TRAIL_MAX + 100), size=1000)
    assert (len(host.trail), host.trail[0][0]) == (TRAIL_MAX, 101)


def test_members_of_different_code_are_of_different_lineage_until_all_have_begun_the_new_era() -> None:
    """A rolling upgrade: a member holds the same state in another form, and no member may stop because of that."""
    old, upgraded = member(), member()
    for host in (old, upgraded):
        run(host, 1, CALLS)
    before = upgraded.chain
    upgraded = restored(upgraded, NewerBox)
    assert upgraded.chain == before
    assert upgraded.lineage != old.lineage

    # Callers still have the old version: digests differ in form, which the lineages show.
    for host in (old, upgraded):
        run(host, 31, CALLS)
    assert old.chain != upgraded.chain
    assert upgraded.lineage != old.lineage

    # The last member is upgraded at another index; the first call of the new version makes them equal.
    late = restored(old, NewerBox)
    assert late.lineage not in (old.lineage, upgraded.lineage)
    for host in (late, upgraded):
        run(host, 61, [("box", "k1", "put", "x", 1)], version=2)
        run(host, 62, CALLS, version=2)
        run(host, 92, CALLS, version=1)
    assert (late.chain, late.lineage) == (upgraded.chain, upgraded.lineage)
    assert list(late.trail) == list(upgraded.trail)
    assert late.digest() == upgraded.digest()


def test_a_restart_with_the_same_code_keeps_the_lineage_and_one_with_other_code_after_it_does_not() -> None:
    one = member()
    run(one, 1, CALLS)
    assert restored(restored(one)).lineage == one.lineage
    twice = restored(restored(one, NewerBox), NewerBox)
    assert twice.lineage == restored(one, NewerBox).lineage


def test_a_member_that_replays_everything_with_new_code_agrees_with_those_that_were_upgraded() -> None:
    upgraded, replaying = member(), member(NewerBox)
    run(upgraded, 1, CALLS)
    upgraded = restored(upgraded, NewerBox)
    run(replaying, 1, CALLS)
    assert upgraded.lineage != replaying.lineage
    for host in (upgraded, replaying):
        run(host, 31, CALLS, version=2)
    assert (upgraded.chain, upgraded.lineage) == (replaying.chain, replaying.lineage)


PROGRAM = """
import sys
sys.path.insert(0, ".")
from tests.actors.replicated.calls import apply
from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command

class Bag(ReplicatedActor):
    def __init__(self):
        self.words = set()
        self.seen = {}
    @command
    def add(self, words: list[str]) -> set[str]:
        self.words |= set(words)
        self.seen[self.new_id()] = (self.now, self.random.random())
        return self.words
    @command
    def fail(self) -> None:
        raise ValueError(sorted(self.words))

host = ActorHost({"bag": Bag})
for n in range(1, 40):
    apply(host, n, ("bag", f"k{n % 3}", *(["fail"] if n % 5 == 0 else ["add", [f"w{n}", f"v{n}"]])))
print(host.chain, host.lineage, host.digest().hex())
"""


@pytest.mark.slow
def test_chain_and_digest_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
