"""Sessions end by a record of the log, and their results are bounded."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from tests.streams.actors import CLASSES, call, commands
from tests.streams.log import Log, fence, open_session, pieces, records, restored
from viewstamp.errors import OverloadedError, RequestError, StaleSessionError, UnavailableError
from viewstamp.node.state_machine import Accepted, Answered, CommandResults, OutcomeQuery, TopicsQuery
from viewstamp.streams import Streams
from viewstamp.streams.sessions import EXPIRED_MAX
from viewstamp.wire.batch import Batch, Kind, build_batch

HOUR = 3600
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def log() -> Log:
    return Log(Streams(CLASSES, session_seconds=HOUR))


def now(log: Log) -> int:
    return log.seconds * 1_000_000 + 1000 + log.next_index


def upkeep(log: Log) -> Batch | None:
    return log.machine.upkeep(now(log), now(log))


def expired(log: Log) -> list[int]:
    """Let the leader do its periodic work; return the sessions that it ended."""
    batch = upkeep(log)
    if batch is None:
        return []
    assert log.run(batch) == {}
    sessions = msgpack.unpackb(batch.values()[0])
    assert isinstance(sessions, list)
    return sessions


def test_a_session_that_is_not_used_ends_by_a_record_and_one_that_is_used_goes_on(log: Log) -> None:
    topic, idle, busy = log.topic(), log.session(), log.session()
    log.append(topic, idle, 1)
    log.seconds += HOUR // 2
    log.append(topic, busy, 1)
    assert expired(log) == []
    log.seconds += HOUR // 2 + 1
    assert expired(log) == [idle]
    for batch in (records(topic, idle, 1), records(topic, idle, 2), fence(idle, 1)):
        with pytest.raises(StaleSessionError):
            log.propose(batch)
    assert log.append(topic, busy, 2).first_position == 3
    assert expired(log) == []


@pytest.mark.parametrize("use", ["records", "commands", "fence", "opening"])
def test_every_batch_of_a_session_is_a_use(log: Log, use: str) -> None:
    topic, session = log.topic(), log.session()
    log.seconds += HOUR - 1
    match use:
        case "records":
            log.append(topic, session, 1)
        case "commands":
            log.run(commands(session, 1, call("add", 1)))
        case "fence":
            log.run(fence(session, 1))
        case _:
            session = log.session()
    log.seconds += HOUR - 1
    assert session not in expired(log)
    log.seconds += 2
    assert expired(log) == [session]


def test_the_record_decides_and_not_a_members_own_settings(log: Log) -> None:
    patient, hasty = Streams(CLASSES, session_seconds=1e9), Streams(CLASSES, session_seconds=1)
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1)
    log.seconds += HOUR + 1
    assert expired(log) == [session]
    for member in (patient, hasty):
        for batch in log.applied:
            member.apply(batch)
        assert (member.digest(), member.chain) == (log.machine.digest(), log.machine.chain)


def test_no_session_ends_before_its_record_because_of_a_members_own_settings(log: Log) -> None:
    hasty = Streams(CLASSES, session_seconds=1)
    topic, session = log.topic(), log.session()
    for sequence in (1, 2):
        log.append(topic, session, sequence)
        log.seconds += HOUR - 1
    for batch in log.applied:
        hasty.apply(batch)
    assert (hasty.digest(), hasty.chain) == (log.machine.digest(), log.machine.chain)


def test_a_batch_never_enters_the_log_behind_the_end_of_its_session(log: Log) -> None:
    """The leader would give positions to its records, but members reject batches of a session that has ended."""
    topic, session = log.topic(), log.session()
    log.seconds += HOUR + 1
    batch = upkeep(log)
    assert batch is not None
    assert isinstance(log.propose(batch), Accepted)
    for late in (records(topic, session, 1), fence(session, 1)):
        with pytest.raises(UnavailableError, match="about to end"):
            log.propose(late)
    log.apply()
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, session, 1))


def test_a_session_used_by_an_unapplied_batch_is_not_ended(log: Log) -> None:
    topic, session, other = log.topic(), log.session(), log.session()
    log.seconds += HOUR + 1
    stale = upkeep(log)
    assert stale is not None
    log.propose(records(topic, session, 1))
    with pytest.raises(UnavailableError):
        log.propose(stale)
    assert expired(log) == [other]
    assert log.append(topic, session, 2).first_position == 2


def test_one_batch_at_a_time_forgets_sessions() -> None:
    """The sessions that a second batch forgets would depend on the outcome of the first."""
    log = Log(Streams(sessions_max=2, session_seconds=HOUR))
    older, newer = log.session(), log.session()
    log.seconds += HOUR + 1
    ending = upkeep(log)
    assert ending is not None
    log.propose(ending)
    assert upkeep(log) is None
    with pytest.raises(OverloadedError):
        log.propose(open_session())
    log.apply()
    log.session(), log.session()
    log.propose(open_session())
    log.seconds += HOUR + 1
    assert upkeep(log) is None
    with pytest.raises(UnavailableError):
        log.propose(build_batch([msgpack.packb([1])], kind=Kind.EXPIRE_SESSIONS))
    log.apply()
    assert len(expired(log)) == 2
    assert {older, newer}.isdisjoint(expired(log))


def test_many_sessions_end_in_several_records() -> None:
    log = Log(Streams(session_seconds=HOUR))
    sessions = [log.session() for _ in range(EXPIRED_MAX + 3)]
    log.seconds += HOUR + 1
    assert expired(log) == sessions[:EXPIRED_MAX]
    assert expired(log) == sessions[EXPIRED_MAX:]


def test_use_is_part_of_a_snapshot() -> None:
    log = Log(Streams(CLASSES, session_seconds=HOUR))
    first, second = log.session(), log.session()
    log.seconds += HOUR // 2
    log.run(fence(first, 1))
    log.seconds += HOUR // 2 + 1
    copy = restored(log.machine, CLASSES, session_seconds=HOUR)
    copy.begin_leading()
    batch = copy.upkeep(now(log), now(log))
    assert batch is not None
    assert msgpack.unpackb(batch.values()[0]) == [second]


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x01", msgpack.packb([-1]), msgpack.packb(["a"])])
def test_a_record_that_names_no_sessions_is_refused(log: Log, value: bytes) -> None:
    with pytest.raises(RequestError):
        log.propose(build_batch([value], kind=Kind.EXPIRE_SESSIONS))


# Results.


def padded(session: int, sequence: int, size: int) -> Batch:
    return commands(session, sequence, call("pad", size))


def has_results(log: Log, session: int, sequence: int) -> bool:
    answer = log.propose(padded(session, sequence, 0))
    assert isinstance(answer, Answered)
    assert isinstance(answer.result, CommandResults)
    return answer.result.results is not None


def test_results_of_all_sessions_together_are_bounded_and_receipts_stay() -> None:
    log = Log(Streams(CLASSES, result_bytes_max=10_000))
    sessions = [log.session() for _ in range(5)]
    for session in sessions:
        log.run(padded(session, 1, 3000))
    assert [has_results(log, session, 1) for session in sessions] == [False, False, True, True, True]
    assert log.machine.status()["session_result_bytes"] == sum(
        len(msgpack.packb([b"\x91" + msgpack.packb(b"x" * 3000)])) for _ in range(3)
    )


def test_the_least_recent_caller_loses_results_first() -> None:
    log = Log(Streams(CLASSES, result_bytes_max=10_000))
    one, two, three = log.session(), log.session(), log.session()
    for session, sequence in ((one, 1), (two, 1), (one, 2), (three, 1)):
        log.run(padded(session, sequence, 3000))
    assert [has_results(log, *each) for each in ((one, 1), (two, 1), (one, 2), (three, 1))] == [True, False, True, True]


def test_the_newest_caller_always_keeps_its_results() -> None:
    log = Log(Streams(CLASSES, result_bytes_max=1000))
    one, two = log.session(), log.session()
    log.run(padded(one, 1, 5000))
    assert has_results(log, one, 1)
    log.run(padded(two, 1, 5000))
    assert (has_results(log, one, 1), has_results(log, two, 1)) == (False, True)


def test_results_dropped_with_a_session_or_a_fence_are_not_counted_any_more(log: Log) -> None:
    one, two = log.session(), log.session()
    log.run(padded(one, 1, 3000))
    log.run(padded(two, 1, 3000))
    log.run(fence(one, 100))
    assert 3000 < int(str(log.machine.status()["session_result_bytes"])) < 4000
    log.seconds += HOUR + 1
    assert set(expired(log)) == {one, two}
    assert log.machine.status()["session_result_bytes"] == 0


def test_a_copy_drops_the_results_that_its_original_drops() -> None:
    """Pieces handed out later contain the results at the cut's beginning, too."""
    log = Log(Streams(CLASSES, result_bytes_max=10_000))
    one, two = log.session(), log.session()
    for session, sequence in ((one, 1), (two, 1), (one, 2)):
        log.run(padded(session, sequence, 3000))
    digest = log.machine.digest()
    cut = log.machine.begin_snapshot()
    begun = len(log.applied)
    log.run(padded(two, 2, 100))
    for sequence in (3, 4, 5):
        log.run(padded(one, sequence, 3000))
    copy = Streams(CLASSES, result_bytes_max=10_000)
    copy.adopt(copy.prepare(pieces(cut)))
    assert copy.digest() == digest
    for batch in log.applied[begun:]:
        copy.apply(batch)
    assert copy.digest() == log.machine.digest()
    assert not has_results(log, two, 2)


# Older snapshots.


@pytest.mark.parametrize("version", [1, 2])
def test_states_of_older_versions_are_read_and_their_sessions_count_as_just_used(version: int) -> None:
    lines = (FIXTURES / f"state_{version}.hex").read_text().split()
    machine = Streams(CLASSES, session_seconds=HOUR)
    machine.adopt(machine.prepare(map(bytes.fromhex, lines)))
    # As written then: two topics, sessions 3 and 4; session 4 has results, and its sequences 2 and 3 are fenced.
    assert [topic["name"] for topic in machine.query(TopicsQuery())] == ["orders", "aged"]  # type: ignore[attr-defined]
    results = machine.query(OutcomeQuery(session=4, sequence=1))
    assert isinstance(results, CommandResults)
    assert results.results is not None
    assert machine.query(OutcomeQuery(session=4, sequence=3)) is None
    assert machine.status()["session_result_bytes"] == len(msgpack.packb(results.results))
    machine.begin_leading()
    seven = 7_000_000
    assert machine.upkeep(seven, seven + HOUR * 1_000_000) is None
    batch = machine.upkeep(seven, seven + (HOUR + 2) * 1_000_000)
    assert batch is not None
    assert {3, 4} <= set(msgpack.unpackb(batch.values()[0]))
