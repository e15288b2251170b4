"""The bounds, the order and the wake-ups of a mailbox."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from viewstamp.actors import Loss, Overflow
from viewstamp.actors.mailbox import DropOldestMailbox, Mailbox
from viewstamp.errors import ClosedError, OverloadedError

Lost = list[tuple[bytes, Loss, int]]


def make(
    wakes: list[int] | None = None,
    lost: Lost | None = None,
    *,
    count_max: int = 1000,
    bytes_max: int = 0,
    overflow: Overflow = Overflow.REFUSE,
) -> Mailbox[bytes]:
    seen = wakes if wakes is not None else []
    kind = DropOldestMailbox if overflow is Overflow.DROP_OLDEST else Mailbox
    return kind(
        "a",
        lambda: seen.append(1),
        lambda *loss: None if lost is None else lost.append(loss),
        count_max=count_max,
        bytes_max=bytes_max,
        measure=len if bytes_max else None,
        overflow=overflow,
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
    """Refusing it with "try again later" would be wrong, because it would never fit."""
    mailbox = make(bytes_max=10)
    mailbox.tell(b"x" * 100)
    with pytest.raises(OverloadedError):
        mailbox.tell(b"x")
    assert mailbox.take_one() == b"x" * 100
    assert mailbox.bytes == 0


def test_a_closed_mailbox_is_empty_refuses_tell_and_loses_put() -> None:
    lost: Lost = []
    mailbox = make(lost=lost)
    mailbox.tell(b"1")
    assert mailbox.close() == [b"1"]
    assert mailbox.close() == []
    mailbox.put(b"2")
    with pytest.raises(ClosedError, match="'a' has stopped"):
        mailbox.tell(b"3")
    assert len(mailbox) == 0
    assert lost == [(b"2", Loss.ENDED, 0), (b"3", Loss.ENDED, 0)]


def test_a_mailbox_that_refuses_accepts_put_and_returns_waiting_messages() -> None:
    mailbox = make()
    mailbox.tell(b"1")
    mailbox.refuse()
    with pytest.raises(ClosedError):
        mailbox.tell(b"2")
    mailbox.put(b"3")
    assert mailbox.take() == [b"1", b"3"]


def test_returned_messages_come_before_all_others_and_count_as_not_taken() -> None:
    wakes: list[int] = []
    mailbox = make(wakes, bytes_max=100)
    for message in (b"1", b"2", b"3"):
        mailbox.tell(message)
    taken = mailbox.take()
    mailbox.tell(b"44")
    assert mailbox.give_back(taken[1:])
    assert (mailbox.taken, mailbox.accepted, mailbox.bytes) == (1, 4, 4)
    assert mailbox.take() == [b"2", b"3", b"44"]


def test_nothing_is_given_back_to_a_closed_mailbox() -> None:
    mailbox = make()
    mailbox.tell(b"1")
    taken = mailbox.take()
    mailbox.close()
    assert not mailbox.give_back(taken)
    assert (mailbox.taken, len(mailbox)) == (0, 0)


def test_a_full_mailbox_that_drops_the_newest_keeps_the_others() -> None:
    lost: Lost = []
    mailbox = make(lost=lost, count_max=2, overflow=Overflow.DROP_NEWEST)
    assert [mailbox.tell(message) for message in (b"1", b"2", b"3")] == [True, True, False]
    assert lost == [(b"3", Loss.OVERFLOW, 0)]
    assert mailbox.take() == [b"1", b"2"]


def test_a_full_mailbox_that_drops_the_oldest_never_drops_put_messages() -> None:
    lost: Lost = []
    mailbox = make(lost=lost, count_max=3, overflow=Overflow.DROP_OLDEST)
    mailbox.put(b"tick")
    for message in (b"1", b"2", b"3", b"4"):
        assert mailbox.tell(message)
    assert lost == [(b"1", Loss.OVERFLOW, 2), (b"2", Loss.OVERFLOW, 3)]
    assert mailbox.take() == [b"tick", b"3", b"4"]
    for _ in range(3):
        mailbox.put(b"tick")
    assert not mailbox.tell(b"5")
    assert lost[-1] == (b"5", Loss.OVERFLOW, 0)
    assert mailbox.take() == [b"tick"] * 3


def test_as_many_of_the_oldest_are_dropped_as_the_bytes_ask_for() -> None:
    lost: Lost = []
    mailbox = make(lost=lost, bytes_max=10, count_max=100_000, overflow=Overflow.DROP_OLDEST)
    for size in (4, 3, 3, 5):
        mailbox.tell(bytes(size))
    assert [len(message) for message, _, _ in lost] == [4, 3]
    assert mailbox.bytes == 8
    assert mailbox.tell(bytes(50))
    assert (len(mailbox), mailbox.bytes) == (1, 50)


@pytest.mark.parametrize(
    ("count_max", "bytes_max", "measure"), [(0, 0, None), (1, 10, None), (1, 0, len)], ids=["none", "blind", "useless"]
)
def test_bounds_that_make_no_sense_are_refused(count_max: int, bytes_max: int, measure: object) -> None:
    with pytest.raises(AssertionError, match="mailbox of 'a'"):
        Mailbox(
            "a",
            lambda: None,
            lambda *_: None,
            count_max=count_max,
            bytes_max=bytes_max,
            measure=measure,  # type: ignore[arg-type]
        )


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


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["tell", "put"]), st.integers(0, 9)),
            st.tuples(st.sampled_from(["take", "take_one"]), st.just(0)),
            st.tuples(st.just("fail"), st.integers(0, 3)),
        )
    )
)
@example(
    [*[("tell", 0)] * 3, ("fail", 1), ("tell", 0), ("tell", 0), ("take_one", 0)]
)  # Drops the one between two others.
@example([*[("tell", 0)] * 3, ("fail", 1), ("tell", 0), ("tell", 0), ("fail", 0)])
def test_a_mailbox_that_drops_the_oldest_reports_each_loss_and_counts_taken_messages(
    steps: list[tuple[str, int]],
) -> None:
    """``ticket <= taken`` decides whether an ask may have been carried out."""
    lost: Lost = []
    mailbox = make(lost=lost, count_max=3, bytes_max=12, overflow=Overflow.DROP_OLDEST)
    waits: list[tuple[int, bytes, bool]] = []  # ticket, message, may be dropped
    told: set[int] = set()
    taken: list[int] = []
    for number, (verb, size) in enumerate(steps):
        message = bytes([number % 256] * size)
        lost.clear()
        if verb == "tell":
            was_added = mailbox.tell(message)
            for dropped, loss, ticket in lost:
                assert loss is Loss.OVERFLOW
                if ticket:
                    place = next(place for place, each in enumerate(waits) if each[2])
                    assert waits.pop(place)[:2] == (ticket, dropped)
            if was_added:
                waits.append((mailbox.accepted, message, True))
                told.add(mailbox.accepted)
            else:
                assert lost[-1][0] == message
                assert not any(each[2] for each in waits)
        elif verb == "put":
            mailbox.put(message)
            waits.append((mailbox.accepted, message, False))
        elif verb == "take":
            assert mailbox.take() == [each[1] for each in waits]
            taken += [each[0] for each in waits if each[0] in told]
            waits.clear()
        elif verb == "take_one" and waits:
            ticket, first, _ = waits.pop(0)
            assert mailbox.take_one() == first
            taken += [ticket] * (ticket in told)
        elif verb == "fail":
            turn = mailbox.take()
            behind = turn[min(size, len(turn)) :]
            seen = waits[: len(turn) - len(behind)]
            assert mailbox.give_back(behind)
            waits = [(ticket, each, False) for ticket, each, _ in waits[len(seen) :]]
            taken += [ticket for ticket, _, _ in seen if ticket in told]
        assert len(mailbox) == len(waits)
        assert mailbox.bytes == sum(len(each) for _, each, _ in waits)
        assert all(ticket <= mailbox.taken for ticket in taken)
        assert all(ticket > mailbox.taken for ticket, _, _ in waits if ticket in told)


def test_a_quiet_message_waits_for_the_next_turn() -> None:
    wakes: list[int] = []
    mailbox = make(wakes)
    mailbox.put(b"1", wakes=False)
    assert not wakes
    mailbox.put(b"2")
    assert len(wakes) == 1
    assert mailbox.take() == [b"1", b"2"]


def test_many_quiet_messages_cause_a_turn() -> None:
    wakes: list[int] = []
    mailbox = make(wakes)
    for _ in range(1000):
        mailbox.put(b"", wakes=False)
    assert len(wakes) == 1


def test_a_quiet_message_causes_a_turn_when_the_actor_is_to_finish() -> None:
    wakes: list[int] = []
    mailbox = make(wakes)
    mailbox.refuse()
    assert not wakes
    mailbox.put(b"1", wakes=False)
    mailbox.refuse()
    assert len(wakes) == 1
