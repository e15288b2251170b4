"""Cuts: the state at one moment, handed out during later changes, and adopted by another machine."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from tests.streams.actors import CLASSES, call, commands
from tests.streams.log import Log, configure_topic, fence, open_session, pieces, records, restored, trim_topic
from viewstamp.errors import CorruptionError, OutdatedCodeError, StaleSessionError, UnavailableError
from viewstamp.node.state_machine import LocationQuery, OutcomeQuery, SnapshotView, TopicsQuery
from viewstamp.streams import Streams
from viewstamp.streams.cut import _VERSION
from viewstamp.streams.session import RECEIPTS_MAX

SESSIONS = 20
TOPICS = 12


@pytest.fixture
def log() -> Log:
    """A log with every kind of item, so that a cut of it has many pieces."""
    log = Log(Streams(CLASSES, sessions_max=SESSIONS))
    sessions = [log.session() for _ in range(SESSIONS)]
    for n in range(TOPICS):
        log.topic(f"t{n}", retain_bytes=100_000 * (n % 2), retain_seconds=100.0 * (n % 3))
    for n, session in enumerate(sessions):
        log.append(1 + n % TOPICS, session, 1, size=3000)
        log.run(commands(session, 2, call("add", n, key=str(n % 7)), call("write", "a", actor="journal")))
    log.run(trim_topic("t1", 2))
    return log


def adopted(machine: Streams, handed_out: list[bytes]) -> Streams:
    machine.adopt(machine.prepare(handed_out))
    return machine


def fresh() -> Streams:
    return Streams(CLASSES, sessions_max=SESSIONS)


def sessions_of(log: Log) -> list[int]:
    """The ids of the fixture's sessions, which are the first records of its log."""
    return list(range(1, SESSIONS + 1))


def change_everything(log: Log) -> None:
    """Change every item of the state, and add and remove some."""
    log.seconds += 1000  # the topics with an age lose their records
    for n, session in enumerate(sessions_of(log)):
        log.append(1 + n % TOPICS, session, 3, size=100_000)
        log.run(commands(session, 4, call("add", 100, key=str(n % 7)), call("write", "b", actor="journal")))
    log.run(commands(sessions_of(log)[-1], 5, call("add", 1, key="new")))
    log.run(fence(sessions_of(log)[-2], 9))
    log.run(configure_topic("t0", retain_bytes=1))
    log.topic("another")
    log.run(trim_topic("t2", 2))
    log.run(open_session())
    log.run(open_session())


@pytest.mark.parametrize("before", [0, 1, 2, 5, 10, 20, 1000])
@pytest.mark.parametrize("bytes_max", [1, 2000])
def test_a_cut_has_the_state_of_its_beginning_despite_later_batches(log: Log, before: int, bytes_max: int) -> None:
    digest, chain = log.machine.digest(), log.machine.chain
    cut = log.machine.begin_snapshot()
    handed_out = [piece for _, piece in zip(range(before), pieces(cut, bytes_max), strict=False)]
    change_everything(log)
    handed_out.extend(pieces(cut, bytes_max))
    assert log.machine.digest() != digest
    other = adopted(fresh(), handed_out)
    assert (other.digest(), other.chain) == (digest, chain)


def test_a_machine_with_an_adopted_state_goes_on_exactly_like_the_original(log: Log) -> None:
    other = restored(log.machine, CLASSES, sessions_max=SESSIONS)
    known = len(log.applied)
    change_everything(log)
    for batch in log.applied[known:]:
        other.apply(batch)
    assert other.digest() == log.machine.digest()
    assert (other.chain, other.lineage) == (log.machine.chain, log.machine.lineage)
    newest = other.trail()
    assert newest == log.machine.trail()[-len(newest) :]
    for session in sessions_of(log)[2:]:
        for sequence in (1, 2, 3, 4):
            question = {"session": session, "sequence": sequence}
            assert other.query(OutcomeQuery(**question)) == log.machine.query(OutcomeQuery(**question))
    assert other.query(TopicsQuery()) == log.machine.query(TopicsQuery())
    assert other.keep_from() == log.machine.keep_from()
    # The other machine may lead from now on: it ends the same sessions, the least recently used ones first.
    later = Log(other, first_index=log.next_index, term=2)
    later.session()
    with pytest.raises(StaleSessionError):
        later.propose(records(1, sessions_of(log)[2], 5))
    later.append(1, sessions_of(log)[3], 5)


def test_full_rings_of_receipts_and_long_sparse_maps_are_restored(log: Log) -> None:
    session = sessions_of(log)[5]
    for sequence in range(3, RECEIPTS_MAX + 50):
        log.append(1, session, sequence, size=20_000)
    other = restored(log.machine, CLASSES, sessions_max=SESSIONS)
    assert other.digest() == log.machine.digest()
    for position in range(2, RECEIPTS_MAX, 7):
        question = {"topic": 1, "position": position}
        assert other.query(LocationQuery(**question)) == log.machine.query(LocationQuery(**question))


def test_pieces_have_the_requested_size(log: Log) -> None:
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    small = list(pieces(log.machine.begin_snapshot(), 300))
    assert len(small) > 2 * len(whole)
    # A session, topic or counter takes less than 300 bytes, so a piece is at most that much too long; the journal is
    # larger.
    assert sorted(map(len, small))[-2] < 2 * 300
    assert adopted(fresh(), small).digest() == adopted(fresh(), whole).digest() == log.machine.digest()


def test_only_items_changed_before_their_turn_are_kept_in_memory(log: Log) -> None:
    cut = log.machine.begin_snapshot()
    assert not cut.is_waiting
    log.append(1, sessions_of(log)[0], 3)
    log.run(commands(sessions_of(log)[1], 3, call("add", 1, key="1")))
    assert cut.is_waiting
    list(pieces(cut))
    assert not cut.is_waiting
    log.append(1, sessions_of(log)[0], 4)
    assert not cut.is_waiting


def test_items_already_handed_out_may_change_without_being_kept_again(log: Log) -> None:
    cut = log.machine.begin_snapshot()
    for _ in ("state", "sessions"):
        assert cut.next_piece(1 << 20) is not None
    log.run(fence(sessions_of(log)[0], 3))
    assert not cut.is_waiting
    cut.close()


def test_there_is_one_cut_at_a_time_and_the_next_one_after_it(log: Log) -> None:
    cut = log.machine.begin_snapshot()
    with pytest.raises(AssertionError, match="already"):
        log.machine.begin_snapshot()
    cut.close()
    cut.close()
    whole = log.machine.begin_snapshot()
    list(pieces(whole))
    assert whole.next_piece(1000) is None
    log.machine.begin_snapshot().close()


def test_a_cut_that_is_closed_too_early_never_looks_complete(log: Log) -> None:
    """Otherwise a snapshot with only a part of the state would be written with correct checksums, and loaded later."""

    def close(cut: SnapshotView) -> None:
        cut.close()

    def adopt_another(cut: SnapshotView) -> None:
        log.machine.stop_leading()
        log.machine.adopt(log.machine.prepare(list(pieces(Streams(CLASSES).begin_snapshot()))))

    endings: list[Callable[[SnapshotView], None]] = [close, adopt_another]
    for end in endings:
        cut = log.machine.begin_snapshot()
        cut.next_piece(1000)
        end(cut)
        with pytest.raises(UnavailableError):
            cut.next_piece(1000)
        assert not cut.is_waiting


def test_a_state_is_prepared_without_touching_the_one_in_use(log: Log) -> None:
    handed_out = list(pieces(log.machine.begin_snapshot()))
    log.machine.stop_leading()
    change_everything(Log(log.machine, first_index=log.next_index))
    digest = log.machine.digest()
    prepared = log.machine.prepare(handed_out)
    assert log.machine.digest() == digest
    log.machine.stop_leading()
    log.machine.adopt(prepared)
    assert log.machine.digest() == adopted(fresh(), handed_out).digest() != digest


def test_a_leader_adopts_nothing(log: Log) -> None:
    with pytest.raises(AssertionError, match="leader"):
        log.machine.adopt(log.machine.prepare(list(pieces(log.machine.begin_snapshot()))))


def test_batches_that_were_only_admitted_are_in_no_cut(log: Log) -> None:
    digest = log.machine.digest()
    log.propose(records(1, sessions_of(log)[0], 3))
    assert restored(log.machine, CLASSES, sessions_max=SESSIONS).digest() == digest


def test_missing_repeated_or_reordered_pieces_are_refused(log: Log) -> None:
    whole = list(pieces(log.machine.begin_snapshot(), 2000))
    wrong = [whole[:n] for n in range(len(whole))]
    wrong += [whole[1:], [whole[0], *whole], [*whole[:2], *reversed(whole[2:])]]
    for handed_out in wrong:
        with pytest.raises(CorruptionError):
            fresh().prepare(handed_out)


@pytest.mark.parametrize(
    "piece", [b"", b"\xc1", b"\x01", b"\x90", msgpack.packb(["state", 7]), msgpack.packb(["state", [1, 2, 3]])]
)
def test_bytes_that_are_no_piece_are_refused(piece: bytes) -> None:
    with pytest.raises(CorruptionError):
        Streams().prepare([piece])


@pytest.mark.parametrize("section", ["sessions", "topics"])
@pytest.mark.parametrize("images", [7, [7], [[1]], [["a", "b", "c", "d"]], [{}]])
def test_items_that_are_none_are_refused(log: Log, section: str, images: object) -> None:
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    names = [msgpack.unpackb(piece)[0] for piece in whole]
    whole[names.index(section)] = msgpack.packb([section, images])
    with pytest.raises(CorruptionError):
        fresh().prepare(whole)


def test_a_state_of_a_newer_release_asks_for_newer_code(log: Log) -> None:
    whole = list(pieces(log.machine.begin_snapshot()))
    _, header = msgpack.unpackb(whole[0])
    whole[0] = msgpack.packb(["state", [_VERSION + 1, *header[1:], "more"]])
    with pytest.raises(OutdatedCodeError, match=f"version {_VERSION + 1}"):
        fresh().prepare(whole)
    with pytest.raises(OutdatedCodeError):
        Streams().prepare(pieces(log.machine.begin_snapshot()))
