"""The bounds, the order and the waking of a mailbox."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.actors.mailbox import Mailbox
from viewstamp.errors import ClosedError, OverloadedError


def make(wakes: list[int] | None = None, *, count_max: int = 1000, bytes_max: int = 0) -> Mailbox[bytes]:
    seen = wakes if wakes is not None else []
    return Mailbox(
        "a",
        lambda: seen.append(1),
        count_max=count_max,
        bytes_max=bytes_max,
        measure=len if bytes_max else None,
    )


def test_messages_come_out_in_the_order_in_which_they_went_in() -> None:
    mailbox = make()
    mailbox.tell(b"1")
    mailbox.put(b"2")
    mailbox.tell(b"3")
    assert mailbox.take() == [b"1", b"2", b"3"]
    assert mailbox.take() == []


def test_it_wakes_once_until_everything_is_taken() -> None:
    wakes: list[int] = []
    mailbox = make(wakes)
    for _ in range(3):
        mailbox.tell(b"")
    assert len(wakes) == 1
    mailbox.take()
    mailbox.put(b"")
    mailbox.put(b"")
    assert len(wakes) == 2


def test_taking_one_by_one_wakes_again_only_after_the_last() -> None:
    wakes: list[int] = []
    mailbox = make(wakes)
    mailbox.tell(b"1")
    mailbox.tell(b"2")
    assert mailbox.take_one() == b"1"
    mailbox.tell(b"3")
    assert len(wakes) == 1
    assert [mailbox.take_one(), mailbox.take_one()] == [b"2", b"3"]
    mailbox.tell(b"4")
    assert len(wakes) == 2


def test_tell_is_refused_at_the_count_and_changes_nothing() -> None:
    mailbox = make(count_max=2)
    mailbox.tell(b"1")
    mailbox.tell(b"2")
    with pytest.raises(OverloadedError, match=r"'a' is full: 2 messages"):
        mailbox.tell(b"3")
    assert mailbox.take() == [b"1", b"2"]
    mailbox.tell(b"3")
    assert len(mailbox) == 1


def test_put_is_never_refused_but_counts() -> None:
    mailbox = make(count_max=1, bytes_max=10)
    for _ in range(5):
        mailbox.put(b"x" * 100)
    assert (len(mailbox), mailbox.bytes) == (5, 500)
    with pytest.raises(OverloadedError):
        mailbox.tell(b"")


def test_tell_is_refused_at_the_bytes() -> None:
    mailbox = make(bytes_max=10)
    mailbox.tell(b"x" * 6)
    with pytest.raises(OverloadedError, match=r"6 of 10 bytes wait, 5 more do not fit"):
        mailbox.tell(b"x" * 5)
    mailbox.tell(b"x" * 4)
    assert mailbox.bytes == 10
    mailbox.take()
    assert mailbox.bytes == 0


def test_a_message_over_the_byte_limit_passes_through_an_empty_mailbox() -> None:
    """Refusing it with "try again later" would be a lie: later would be no better."""
    mailbox = make(bytes_max=10)
    mailbox.tell(b"x" * 100)
    with pytest.raises(OverloadedError):
        mailbox.tell(b"x")
    assert mailbox.take_one() == b"x" * 100
    assert mailbox.bytes == 0


def test_a_closed_mailbox_is_empty_refuses_tell_and_drops_put() -> None:
    mailbox = make()
    mailbox.tell(b"1")
    mailbox.close()
    mailbox.close()
    mailbox.put(b"2")
    with pytest.raises(ClosedError, match="'a' has stopped"):
        mailbox.tell(b"3")
    assert mailbox.take() == []


@pytest.mark.parametrize(
    ("count_max", "bytes_max", "measure"), [(0, 0, None), (1, 10, None), (1, 0, len)], ids=["none", "blind", "useless"]
)
def test_bounds_that_make_no_sense_are_refused(count_max: int, bytes_max: int, measure: object) -> None:
    with pytest.raises(AssertionError, match="mailbox of 'a'"):
        Mailbox("a", lambda: None, count_max=count_max, bytes_max=bytes_max, measure=measure)  # type: ignore[arg-type]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["tell", "put"]), st.integers(0, 9)),
            st.tuples(st.sampled_from(["take", "take_one"]), st.just(0)),
        )
    )
)
def test_it_behaves_as_a_list_with_two_limits(steps: list[tuple[str, int]]) -> None:
    wakes: list[int] = []
    mailbox = make(wakes, count_max=4, bytes_max=12)
    model: list[bytes] = []
    woken = False
    for verb, size in steps:
        message = bytes(size)
        held = sum(map(len, model))
        if verb == "tell":
            fits = len(model) < 4 and (held == 0 or held + size <= 12)
            try:
                mailbox.tell(message)
            except OverloadedError:
                assert not fits
                continue
            assert fits
        if verb in ("tell", "put"):
            if verb == "put":
                mailbox.put(message)
            model.append(message)
            assert len(wakes) == (0 if woken else 1)
            woken = True
            wakes.clear()
        elif verb == "take":
            assert mailbox.take() == model
            model = []
        elif model:
            assert mailbox.take_one() == model.pop(0)
        woken = woken and bool(model)
        assert (len(mailbox), mailbox.bytes) == (len(model), sum(map(len, model)))
        assert mailbox.accepted - mailbox.taken == len(mailbox)
