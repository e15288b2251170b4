"""A cut is the state of all actors at one index, unaffected by later commands; a host can be restored from a cut."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.actors.replicated.calls import apply, ask, call, pieces_of
from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command, query
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, TrimmedError
from viewstamp.wire.values import pack


class Box(ReplicatedActor):
    def __init__(self) -> None:
        self.values: list[Any] = []

    @command
    def put(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values)

    @command
    def spoil(self) -> None:
        self.values.append(object())

    @query
    def all(self) -> list[Any]:
        return self.values


class NewerBox(Box):
    version = 2

    def get_state(self) -> Any:
        return {"boxed": self.values}

    def set_state(self, state: Any, version: int) -> None:
        self.values = ["old", *state["values"]] if version == 1 else state["boxed"]


def hosting(cls: type[Box] = Box, **more: type[ReplicatedActor]) -> ActorHost:
    return ActorHost({"box": cls, "crate": cls, **more})


def filled(count: int = 5) -> ActorHost:
    host = hosting()
    for n in range(1, count + 1):
        call(host, n, "box" if n % 2 else "crate", f"k{n}", "put", n)
    return host


def restored(pieces: list[bytes], cls: type[Box] = Box) -> ActorHost:
    host = hosting(cls)
    host.adopt(host.prepare(iter(pieces)))
    return host


def test_a_cut_can_be_adopted() -> None:
    host = filled()
    copy = restored(pieces_of(host))
    assert copy.digest() == host.digest()
    assert copy.list() == host.list()
    assert ask(copy, "box", "k3", "all") == [3]
    assert call(copy, 6, "box", "k3", "put", "more") == 2


def test_a_restore_takes_no_memory_beside_its_instances_and_one_piece() -> None:
    host, copy = filled(2_000), hosting()
    pieces = pieces_of(host, 4096)
    shares = []
    for _ in range(5):  # The figures include the memory of other threads, for example of pytest.
        tracemalloc.start()
        try:
            prepared = copy.prepare(iter(pieces))
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(prepared.hosted["box"].order) == 1_000
        shares.append(peak / kept)
        if shares[-1] < 1.25:
            return
    raise AssertionError(f"each time it took much more than it kept: {shares}")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=40), st.sampled_from([1, 20, 60, 1000]))
@settings(max_examples=60)
def test_a_cut_has_the_state_of_its_index_despite_later_commands(steps: list[tuple[bool, int]], bytes_max: int) -> None:
    """A step takes a piece, or commands an instance that was handed out, one that was not, or a new one."""
    host = filled(8)
    expected = host.digest(), host.chain, host.list()
    cut = host.begin_cut()
    pieces = []
    index = 9
    for takes_piece, which in steps:
        if takes_piece:
            piece = cut.next_piece(bytes_max)
            if piece is None:
                break
            pieces.append(piece)
        else:
            call(host, index, "box" if which % 2 else "crate", f"k{which}", "put", index)
            index += 1
    while (piece := cut.next_piece(bytes_max)) is not None:
        pieces.append(piece)
    cut.close()
    copy = restored(pieces)
    assert (copy.digest(), copy.chain, copy.list()) == expected


def test_an_instance_that_changes_before_its_turn_is_kept_until_it_is_handed_out() -> None:
    host = filled(4)
    cut = host.begin_cut()
    assert cut.held_bytes == 0
    call(host, 5, "box", "k1", "put", 1)
    held = cut.held_bytes
    assert held > 0
    call(host, 6, "box", "k1", "put", 1)
    for index in (7, 8):
        call(host, index, "box", "new", "put", 1)
    assert cut.held_bytes == held, "once an instance, and none that the cut does not have"
    cut.next_piece(1)
    cut.next_piece(1)
    assert cut.held_bytes == 0
    for index in (9, 10):
        call(host, index, "box", "k1", "put", 1)
    assert cut.held_bytes == 0, "it has been handed out"
    cut.next_piece(1)
    call(host, 11, "box", "k3", "put", 1)
    assert cut.held_bytes == 0, "that one too, and was not put aside before"


def test_a_closed_cut_holds_nothing_and_costs_nothing() -> None:
    host = filled(4)
    cut = host.begin_cut()
    call(host, 5, "box", "k1", "put", 1)
    cut.close()
    cut.close()
    assert (cut.held_bytes, cut.next_piece(100)) == (0, None)
    call(host, 6, "box", "k3", "put", 1)
    assert cut.held_bytes == 0
    assert restored(pieces_of(host)).digest() == host.digest()


def test_there_is_one_cut_at_a_time() -> None:
    host = filled()
    host.begin_cut()
    with pytest.raises(AssertionError, match="one cut at a time"):
        host.begin_cut()


def test_pieces_are_about_as_large_as_asked() -> None:
    host = hosting()
    for n in range(1, 101):
        call(host, n, "box", f"k{n}", "put", "x" * 100)
    call(host, 101, "box", "large", "put", "x" * 5000)
    pieces = pieces_of(host, 1000)
    assert len(pieces) > 10
    assert max(map(len, pieces[:-1])) < 1500
    assert len(pieces[-1]) < 7000
    assert restored(pieces).digest() == host.digest()


def test_instances_of_a_snapshot_wake_when_they_are_touched_and_are_cut_as_they_were() -> None:
    pieces = pieces_of(filled())
    host = restored(pieces)
    assert pieces_of(host) == pieces
    ask(host, "box", "k1", "all")
    assert pieces_of(host) == pieces
    cut = host.begin_cut()
    call(host, 6, "box", "k3", "put", 1)
    again = []
    while (piece := cut.next_piece(1 << 20)) is not None:
        again.append(piece)
    assert again == pieces


def test_a_state_that_can_not_be_packed_fails_the_cut_and_not_the_command() -> None:
    host = filled()
    apply(host, 6, ("box", "k1", "spoil"))
    with pytest.raises(
        RequestError, match=r"no snapshot was taken, because of box\['k1'\]: self.values\[1\] is an object"
    ):
        pieces_of(host)
    host.adopt(host.prepare(pieces_of(filled())))
    host = filled()
    apply(host, 6, ("box", "k1", "spoil"))
    cut = host.begin_cut()
    apply(host, 7, ("box", "k1", "put", 1))
    with pytest.raises(RequestError, match=r"no snapshot was taken, because of box\['k1'\]"):
        cut.next_piece(100)
    cut.close()


def test_adopting_closes_the_open_cut_and_forgets_what_was() -> None:
    host = filled()
    cut = host.begin_cut()
    host.adopt(host.prepare(pieces_of(filled(2))))
    assert cut.is_closed
    assert (host.digest(), len(host.trail), host.describe_index(3)) == (filled(2).digest(), 0, "")
    assert host.changes("box", None, 3) == ([], 3)
    with pytest.raises(TrimmedError) as caught:
        host.changes("box", None, 2)
    assert caught.value.first == 3


def test_preparing_leaves_the_host_alone() -> None:
    host = filled()
    before = host.digest(), host.chain
    host.prepare(pieces_of(filled(2)))
    assert (host.digest(), host.chain) == before


def test_newer_code_takes_over_older_states() -> None:
    host = restored(pieces_of(filled()), NewerBox)
    assert ask(host, "box", "k1", "all") == ["old", 1]
    half_old = pieces_of(host)  # k1 has version 2 now, the others are still as version 1 left them
    again = restored(half_old, NewerBox)
    assert (ask(again, "box", "k1", "all"), ask(again, "box", "k3", "all")) == (["old", 1], ["old", 3])
    assert again.digest() == host.digest()


def test_older_code_refuses_newer_states() -> None:
    host = restored(pieces_of(filled()), NewerBox)
    ask(host, "box", "k1", "all")
    with pytest.raises(OutdatedCodeError, match="actor 'box' of version 2, but this node's code has version 1 of it"):
        restored(pieces_of(host))


def test_code_without_an_actor_of_the_snapshot_is_refused_unless_it_was_never_called() -> None:
    pieces = pieces_of(filled(1))
    only_box = ActorHost({"box": Box})
    only_box.adopt(only_box.prepare(pieces))
    assert ask(only_box, "box", "k1", "all") == [1]
    with pytest.raises(OutdatedCodeError, match=r"the snapshot holds actor 'crate' of version 1, .* code has box"):
        only_box.prepare(pieces_of(filled(2)))


def test_states_of_an_actor_that_was_only_called_by_name_are_not_dropped() -> None:
    """Such calls carry no version. Code without the actor must not drop its states and snapshot the rest."""
    host = filled(1)
    call(host, 2, "crate", "k2", "put", 2, version=0)
    with pytest.raises(OutdatedCodeError, match="the snapshot holds actor 'crate' of version 1"):
        ActorHost({"box": Box}).prepare(pieces_of(host))


def test_a_class_that_can_not_take_over_its_states_is_found_before_they_are_adopted() -> None:
    class Failing(NewerBox):
        def set_state(self, state: Any, version: int) -> None:
            raise KeyError("boxed")

    with pytest.raises(OutdatedCodeError, match=r"Failing cannot read the state of box\['k1'\]"):
        ActorHost({"box": Failing, "crate": Box}).prepare(pieces_of(filled()))


def test_when_a_state_is_taken_over_does_not_show_in_it() -> None:
    """One member restores an instance at its next command, another one long before, for a query."""

    class Stamped(NewerBox):
        def set_state(self, state: Any, version: int) -> None:
            super().set_state(state, version)
            self.values.append(self.now)

    pieces = pieces_of(filled())
    early, late = restored(pieces, Stamped), restored(pieces, Stamped)
    ask(early, "box", "k1", "all")
    for host in (early, late):
        call(host, 6, "box", "k3", "put", 1)
        call(host, 7, "box", "k1", "put", 1)
    assert early.digest() == late.digest()
    assert early.chain == late.chain


@pytest.mark.parametrize("damage", ["none", "no head", "one is missing", "head", "rows", "format", "bytes"])
def test_pieces_that_are_no_cut_are_refused(damage: str) -> None:
    head, *rows = pieces_of(filled())
    pieces = {
        "none": [],
        "no head": rows,
        "head": [pack({"format": 1, "actors": {}}), *rows],
        "one is missing": [head, *rows[1:]],
        "rows": [head, pack(["box", [[1, 2]]])],
        "format": [pack([1, 2]), *rows],
        "bytes": [head, b"\xc1"],
    }[damage]
    with pytest.raises(CorruptionError):
        filled().prepare(pieces)


def test_a_cut_of_a_newer_format_is_refused_as_such() -> None:
    with pytest.raises(OutdatedCodeError, match="format 2"):
        filled().prepare([pack({"format": 2})])
