"""The merge of a topic's streams: one order, no holes, and a bound of the memory."""

from __future__ import annotations

import random

import pytest

from viewstamp.client.merge import Merge, Piece
from viewstamp.errors import PeerError, TrimmedError
from viewstamp.ids import GlobalPosition

Pieces = list[tuple[int, int]]


def merge(streams: int = 2, position: int = 1, end: int | None = None, exists_to: int = 1) -> Merge[str]:
    return Merge(
        streams,
        GlobalPosition(position),
        GlobalPosition(end) if end is not None else None,
        exists_to=GlobalPosition(exists_to),
    )


def put(
    merged: Merge[str], stream: int, pieces: Pieces, known_to: int, *, kept_from: int = 1, more: bool = False
) -> None:
    """Put pieces of (position, number of records), of 10 bytes for each record."""
    merged.put(
        stream,
        merged.lanes[stream].covered_to,
        [Piece(GlobalPosition(position), length, 10 * length, f"{stream}") for position, length in pieces],
        known_to=GlobalPosition(known_to),
        kept_from=GlobalPosition(kept_from),
        has_more=more,
    )


def taken(merged: Merge[str]) -> Pieces:
    return [(piece.position, stream) for stream, piece in merged.take()]


def test_records_are_taken_in_the_order_of_their_positions_from_whichever_stream_has_them() -> None:
    merged = merge(3)
    put(merged, 1, [(1, 2), (6, 1)], 7)
    assert taken(merged) == [(1, 1)]
    put(merged, 3, [(5, 1), (7, 2)], 9)
    assert taken(merged) == []
    merged.check()
    assert merged.missing == [2]
    put(merged, 2, [(3, 2)], 5)
    assert taken(merged) == [(3, 2), (5, 3), (6, 1), (7, 3)]
    assert merged.position == 9


def test_a_position_that_no_stream_has_was_trimmed_or_contradicts_the_order() -> None:
    merged = merge()
    put(merged, 1, [(5, 1)], 6, kept_from=5)
    put(merged, 2, [(3, 1)], 4)
    assert taken(merged) == []
    with pytest.raises(TrimmedError, match="position 1 has been trimmed; all records from position 5 on are kept"):
        merged.check()
    merged.skip_to(GlobalPosition(5))
    assert taken(merged) == [(5, 1)]
    merged = merge()
    put(merged, 1, [(2, 1)], 3)
    put(merged, 2, [], 3)
    with pytest.raises(PeerError, match="no stream has position 1"):
        merged.check()


def test_a_position_that_was_lost_is_an_error_that_names_the_next_one() -> None:
    merged = merge()
    put(merged, 1, [(5, 1)], 6)
    put(merged, 2, [(1, 2)], 9)
    assert taken(merged) == [(1, 2)]
    with pytest.raises(TrimmedError, match="positions 3 to 4 were lost with a majority of the nodes") as caught:
        merged.check((2, 7))
    assert caught.value.first == 5
    assert merged.position == 3, "nothing was skipped"
    with pytest.raises(PeerError, match="no stream has position 3"):
        merged.check((4, 7))
    merged.skip_to(GlobalPosition(5))
    assert taken(merged) == [(5, 1)]
    put(merged, 1, [], 9)
    with pytest.raises(TrimmedError, match="positions 6 to 6 were lost") as caught:
        merged.check((2, 7))
    assert caught.value.first == 7


def test_a_trimmed_position_names_the_first_from_which_on_all_is_kept() -> None:
    """An answer repeats the position from which on it was asked, if nothing from there on was trimmed."""
    merged = merge(exists_to=90)
    put(merged, 1, [], 75, kept_from=24)
    put(merged, 1, [(82, 2)], 87, kept_from=75)
    put(merged, 2, [(35, 40)], 75, kept_from=32)
    with pytest.raises(TrimmedError, match="all records from position 32 on are kept") as trimmed:
        merged.check()
    assert trimmed.value.first == 32
    merged.skip_to(GlobalPosition(35))
    assert taken(merged) == [(35, 2)]


def test_a_position_of_two_streams_is_an_error_and_is_not_read_twice() -> None:
    merged = merge()
    put(merged, 1, [(1, 2)], 3)
    put(merged, 2, [(2, 1)], 3)
    assert taken(merged) == [(1, 1)]
    with pytest.raises(PeerError, match="position 2 belongs to stream 2, and to another stream as well"):
        merged.take()


@pytest.mark.parametrize(("pieces", "known_to"), [([(0, 1)], 2), ([(2, 2), (3, 1)], 5), ([(1, 3)], 3), ([(2, 0)], 3)])
def test_an_answer_whose_records_do_not_rise_is_refused(pieces: Pieces, known_to: int) -> None:
    merged = merge()
    with pytest.raises(PeerError, match="stream 1 was sent with"):
        put(merged, 1, pieces, known_to)
    assert merged.lanes[1].covered_to == 1


def test_an_answer_that_was_asked_before_a_skip_is_dropped() -> None:
    merged = merge()
    put(merged, 1, [], 1, kept_from=9)
    merged.skip_to(GlobalPosition(9))
    piece = Piece(GlobalPosition(11), 1, 1, "late")
    merged.put(1, GlobalPosition(1), [piece], known_to=GlobalPosition(12), kept_from=GlobalPosition(9), has_more=False)
    assert merged.lanes[1].covered_to == 9, "records from 9 to 10 would be skipped"


def test_a_skip_into_a_piece_asks_for_the_rest_again() -> None:
    merged = merge()
    put(merged, 1, [(1, 4), (7, 1)], 8)
    merged.skip_to(GlobalPosition(3))
    assert (merged.lanes[1].covered_to, merged.lanes[1].size) == (3, 0)
    put(merged, 1, [(3, 2)], 5)
    assert taken(merged) == [(3, 1)]


def test_a_lane_holds_its_share_while_another_stream_stands_still() -> None:
    merged = merge(exists_to=100)
    assert merged.wants(1, 100)
    put(merged, 1, [(2, 4)], 10)
    assert merged.wants(1, 100), "it holds less than half of its share"
    put(merged, 1, [(10, 2)], 20)
    assert not merged.wants(1, 100)
    assert merged.wants(2, 100)
    assert (merged.needs(1), merged.needs(2)) == (0, 1)
    put(merged, 2, [(1, 1)], 50)
    assert taken(merged) == [(1, 2), (2, 1)]
    assert merged.wants(1, 100)


def test_a_batch_above_the_share_is_asked_for_when_it_is_next() -> None:
    merged = merge()
    put(merged, 1, [], 3, more=True)
    assert not merged.wants(1, 100), "the request would be answered with nothing, over and over"
    put(merged, 2, [(1, 2)], 3)
    assert taken(merged) == [(1, 2)]
    assert merged.wants(1, 100)
    assert merged.needs(1) == 3


def test_a_range_ends_without_the_records_behind_it() -> None:
    merged = merge(end=3)
    put(merged, 1, [(1, 1), (3, 1)], 4)
    assert taken(merged) == [(1, 1)]
    assert not merged.is_over
    assert not merged.wants(1, 100)
    put(merged, 2, [(2, 1)], 9)
    assert taken(merged) == [(2, 2)]
    assert merged.is_over
    assert taken(merged) == []


def test_any_division_of_the_records_into_answers_gives_the_same_order() -> None:
    for seed in range(200):
        entropy = random.Random(seed)
        streams, end = entropy.randint(1, 5), entropy.randint(2, 60)
        owners = [0, *(entropy.randint(1, streams) for _ in range(1, end))]
        merged, found = merge(streams, end=end, exists_to=end), []
        while not merged.is_over:
            wanted = [stream for stream in merged.lanes if merged.wants(stream, 40)]
            assert wanted, "the reader stands still"
            stream = entropy.choice(wanted)
            begin = merged.lanes[stream].covered_to
            known_to = entropy.randint(begin + 1, end)
            put(merged, stream, [(at, 1) for at in range(begin, known_to) if owners[at] == stream], known_to)
            found += taken(merged)
            merged.check()
        assert found == list(enumerate(owners))[1:]
