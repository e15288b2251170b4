"""Batches of actors' commands: applied once, with results kept for retries."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.actors import CLASSES, Counter, EmptyError, arguments, call, commands, decoded, result_of
from tests.streams.log import Log, create_topic, fence, records, restored
from viewstamp.actors.replicated import ActorHost
from viewstamp.errors import (
    OutdatedCodeError,
    RequestError,
    ResultTooLargeError,
    StaleSessionError,
    TrimmedError,
    UnavailableError,
    UnknownActorError,
)
from viewstamp.ids import Index, Position, Term
from viewstamp.node.state_machine import (
    Accepted,
    ActorChangesQuery,
    ActorQuery,
    ActorsQuery,
    Answered,
    CommandResults,
    InterfaceQuery,
    OutcomeQuery,
    Placement,
    Waiting,
)
from viewstamp.streams import Streams
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.session import RECEIPTS_MAX, RESULT_BYTES_MAX, RESULTS_MAX
from viewstamp.wire.batch import Batch
from viewstamp.wire.commands import decode_result


@pytest.fixture
def log() -> Log:
    return Log(Streams(CLASSES))


def run(log: Log, session: int, sequence: int, *calls: bytes) -> CommandResults:
    results = log.run(commands(session, sequence, *calls))
    assert isinstance(results, CommandResults)
    return results


def total(machine: Streams, key: str = "") -> Any:
    answer = machine.query(ActorQuery(actor="counter", key=key, method="read", arguments=arguments()))
    assert isinstance(answer, bytes)
    return result_of(answer)


# Applying.


def test_commands_are_applied_in_order_and_each_has_its_result(log: Log) -> None:
    session = log.session()
    index = log.next_index
    results = run(log, session, 1, call("add", 5), call("take", 9), call("add", 2, key="b"), call("add", 1))
    assert results.receipt == Placement(Position(0), 4, Term(1), Index(index), 1000 + index)
    five, error, two, six = decoded(results.results)
    assert (five, two, six) == (5, 2, 6)
    assert isinstance(error, EmptyError)
    assert error.message == "5 left"
    assert (total(log.machine), total(log.machine, "b")) == (6, 2)


def test_a_member_that_was_not_the_leader_applies_the_same(log: Log) -> None:
    session = log.session()
    other = restored(log.machine, CLASSES)
    results = run(log, session, 1, call("write", "a", actor="journal"), call("add", 3))
    assert other.apply(log.applied[-1]) == results
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)


def test_a_command_for_unknown_code_never_enters_the_log(log: Log) -> None:
    session = log.session()
    for wrong in (
        call("add", 1, actor="stock"),
        call("sub", 1),
        call("add"),
        call("read"),
        call("add", 1, version=2),
        b"\xc1",
    ):
        with pytest.raises(RequestError):
            log.propose(commands(session, 1, call("add", 1), wrong))
    assert log.unapplied == []
    assert decoded(run(log, session, 1, call("add", 1)).results) == [1]


def test_a_member_without_the_code_of_a_committed_command_stops(log: Log) -> None:
    session = log.session()
    for classes, batch in (({}, commands(session, 1, call("add", 1))), (CLASSES, commands(session, 1, b"\xc1"))):
        member = Streams(classes)
        for earlier in log.applied:
            member.apply(earlier)
        batch.stamp(
            term=Term(1), first_index=Index(2), previous_term=Term(1), log_time=2000, first_position=Position(0)
        )
        with pytest.raises(OutdatedCodeError):
            member.apply(batch)


def test_a_failure_of_the_process_is_no_result(log: Log) -> None:
    session = log.session()
    log.propose(commands(session, 1, call("lose_disk")))
    with pytest.raises(OSError, match="own trouble"):
        log.apply()


# Once.


def test_a_retry_gets_the_same_results_and_is_not_applied_again(log: Log) -> None:
    session = log.session()
    results = run(log, session, 1, call("add", 5), call("take", 9))
    run(log, session, 2, call("add", 1))
    assert log.propose(commands(session, 1, call("add", 5), call("take", 9))) == Answered(results)
    assert log.machine.query(OutcomeQuery(session=session, sequence=1)) == results
    assert log.propose(fence(session, 1)) == Answered(results)
    assert total(log.machine) == 6


def test_a_retry_of_an_applied_batch_is_answered_without_reading_its_commands(log: Log) -> None:
    """This member may run code without the actor, which could not read the commands."""
    session = log.session()
    results = run(log, session, 1, call("add", 5))
    assert log.propose(commands(session, 1, b"\xc1")) == Answered(results)


def test_a_retry_of_commands_in_the_log_waits_for_them(log: Log) -> None:
    session = log.session()
    log.propose(commands(session, 1, call("add", 5)))
    assert log.propose(commands(session, 1, call("add", 5))) == Waiting()


def test_a_fence_behind_commands_in_the_log_answers_their_results(log: Log) -> None:
    session = log.session()
    log.propose(commands(session, 1, call("add", 5)))
    results = log.run(fence(session, 1))
    assert isinstance(results, CommandResults)
    assert decoded(results.results) == [5]


def test_fenced_commands_are_never_applied(log: Log) -> None:
    session = log.session()
    log.propose(fence(session, 1))
    with pytest.raises(UnavailableError, match="being fenced"):
        log.propose(commands(session, 1, call("add", 5)))
    assert log.apply() is None
    assert log.propose(commands(session, 1, call("add", 5))) == Answered(None)
    assert total(log.machine) == 0


def test_records_and_commands_of_a_session_share_its_sequence(log: Log) -> None:
    topic, session = log.topic(), log.session()
    receipt = log.append(topic, session, 1)
    results = run(log, session, 2, call("add", 5))
    with pytest.raises(UnavailableError, match="out of order"):
        log.propose(commands(session, 4, call("add", 5)))
    log.append(topic, session, 3)
    assert log.propose(records(topic, session, 1)) == Answered(receipt)
    assert log.propose(commands(session, 2, call("add", 5))) == Answered(results)


def test_results_of_the_newest_batches_are_kept_and_receipts_for_longer(log: Log) -> None:
    session = log.session()
    everything = [run(log, session, n, call("add", 1)) for n in range(1, RECEIPTS_MAX + 2)]
    last = len(everything)
    for sequence in (last, last - RESULTS_MAX + 1):
        assert log.machine.query(OutcomeQuery(session=session, sequence=sequence)) == everything[sequence - 1]
    for sequence in (last - RESULTS_MAX, 2):
        receipt = everything[sequence - 1].receipt
        assert log.machine.query(OutcomeQuery(session=session, sequence=sequence)) == CommandResults(receipt, None)
    with pytest.raises(StaleSessionError):
        log.machine.query(OutcomeQuery(session=session, sequence=1))


def test_large_results_are_kept_up_to_a_bound_and_those_of_the_newest_batch_always() -> None:
    log = Log(Streams(CLASSES, call_result_bytes_max=4 * RESULT_BYTES_MAX))
    session = log.session()
    third = RESULT_BYTES_MAX // 3

    def kept(sequence: int) -> bool:
        outcome = log.machine.query(OutcomeQuery(session=session, sequence=sequence))
        assert isinstance(outcome, CommandResults)
        return outcome.results is not None

    for sequence in range(1, 5):
        run(log, session, sequence, call("pad", third))
    assert [kept(n) for n in range(1, 5)] == [False, False, True, True]
    run(log, session, 5, call("pad", 2 * RESULT_BYTES_MAX))
    assert [kept(n) for n in range(1, 6)] == [False, False, False, False, True]
    newest = log.propose(commands(session, 5, call("add", 1)))
    assert newest == Answered(log.machine.query(OutcomeQuery(session=session, sequence=5)))
    log.append(log.topic(), session, 6)
    assert not kept(5)


def test_a_restored_machine_drops_large_results_at_the_same_batch(log: Log) -> None:
    session = log.session()
    for sequence in (1, 2):
        run(log, session, sequence, call("pad", RESULT_BYTES_MAX // 3))
    other = restored(log.machine, CLASSES)
    run(log, session, 3, call("pad", RESULT_BYTES_MAX // 2))
    other.apply(log.applied[-1])
    assert other.query(OutcomeQuery(session=session, sequence=1)) == log.machine.query(
        OutcomeQuery(session=session, sequence=1)
    )
    assert other.digest() == log.machine.digest()


def test_a_fence_drops_old_results_too(log: Log) -> None:
    session = log.session()
    receipts = [run(log, session, n, call("add", 1)).receipt for n in (1, 2)]
    log.run(fence(session, RESULTS_MAX + 1))
    kept = [log.machine.query(OutcomeQuery(session=session, sequence=n)) for n in (1, 2)]
    assert kept[0] == CommandResults(receipts[0], None)
    assert isinstance(kept[1], CommandResults)
    assert decoded(kept[1].results) == [2]


def test_records_drop_old_results_too(log: Log) -> None:
    topic, session = log.topic(), log.session()
    results = run(log, session, 1, call("add", 1))
    for sequence in range(2, RESULTS_MAX + 1):
        log.append(topic, session, sequence)
    assert log.machine.query(OutcomeQuery(session=session, sequence=1)) == results
    log.append(topic, session, RESULTS_MAX + 1)
    assert log.machine.query(OutcomeQuery(session=session, sequence=1)) == CommandResults(results.receipt, None)


def test_commands_read_in_an_earlier_term_are_not_applied_for_another_batch(log: Log) -> None:
    session = log.session()
    log.propose(commands(session, 1, call("add", 5)))
    log.machine.stop_leading()
    newer = Log(log.machine, first_index=2, term=2)
    ours = commands(session, 1, call("add", 7))
    ours.stamp(term=Term(2), first_index=Index(2), previous_term=Term(1), log_time=2000, first_position=Position(0))
    results = newer.machine.apply(ours)
    assert isinstance(results, CommandResults)
    assert decoded(results.results) == [7]


# Asking.


def test_actors_are_listed_described_and_counted(log: Log) -> None:
    session = log.session()
    run(log, session, 1, call("add", 1), call("add", 1, key="b"))
    listed = log.machine.query(ActorsQuery())
    assert isinstance(listed, list)
    assert [(each["name"], each["class"], each["version"], each["instances"]) for each in listed] == [
        ("counter", "Counter", 1, 2),
        ("journal", "Journal", 1, 0),
    ]
    described = log.machine.query(InterfaceQuery(name="counter"))
    assert isinstance(described, dict)
    assert set(described["commands"]) == set(Counter.__viewstamp__.commands)
    status: Any = log.machine.status()
    assert (status["sessions"], status["topics"]) == (1, 0)
    assert status["actors"]["counter"]["instances"] == 2
    for query in (
        InterfaceQuery("stock"),
        ActorQuery("stock", "", "read", arguments()),
        ActorQuery("counter", "", "add", arguments(1)),
        ActorChangesQuery("stock", None, 0),
    ):
        with pytest.raises(UnknownActorError):
            log.machine.query(query)


def test_changes_follow_from_an_index_and_are_gone_with_a_snapshot(log: Log) -> None:
    session = log.session()
    nothing: Any = log.machine.query(ActorChangesQuery(actor="counter", key=None, index=0))
    assert nothing[0] == []
    run(log, session, 1, call("add", 5), call("add", 2, key="b"))
    rows: Any = log.machine.query(ActorChangesQuery(actor="counter", key="b", index=nothing[1]))
    ((index, log_time, actor, key, method, packed, result),) = rows[0]
    assert (index, log_time, actor, key, method) == (3, 1002, "counter", "b", "add")
    assert (packed, result_of(result)) == (arguments(2), 2)
    assert log.machine.query(ActorChangesQuery(actor="counter", key="b", index=rows[1])) == ([], rows[1])
    with pytest.raises(TrimmedError):
        restored(log.machine, CLASSES).query(ActorChangesQuery(actor="counter", key=None, index=2))


def test_the_trail_finds_the_first_command_that_differed(log: Log) -> None:
    session = log.session()
    other = Log(restored(log.machine, CLASSES), first_index=log.next_index)
    for sequence, amount in ((1, 1), (2, 1), (3, 7), (4, 1)):
        run(log, session, sequence, call("add", 1))
        run(other, session, sequence, call("add", amount))
    assert log.machine.lineage == other.machine.lineage
    assert log.machine.chain != other.machine.chain
    differing = [
        ours[0] for ours, theirs in zip(log.machine.trail(), other.machine.trail(), strict=True) if ours != theirs
    ]
    assert differing == [4, 5]
    assert other.machine.describe_index(4) == "counter.add(7)"
    assert log.machine.describe_index(log.next_index) == ""


def test_members_that_agree_have_equal_chains_after_any_batch(log: Log) -> None:
    other = restored(log.machine, CLASSES)
    seen = set()
    topic, session = log.topic(), log.session()
    batches: list[Batch] = [
        records(topic, session, 1),
        commands(session, 2, call("add", 1)),
        fence(session, 4),
        create_topic("more"),
    ]
    for batch in batches:
        assert isinstance(log.propose(batch), Accepted)
        log.apply()
    for batch in log.applied:
        other.apply(batch)
        seen.add(other.chain)
    assert other.chain == log.machine.chain
    assert len(seen) == len(log.applied)


def test_a_leader_keeps_read_commands_only_until_they_are_applied() -> None:
    view = AdmissionView()
    batch = commands(1, 1, call("add", 1))
    read = ActorHost(CLASSES).decode(batch)
    view.keep_commands(batch, read)
    assert view.take_commands(batch) is read
    assert view.take_commands(batch) is None


def test_the_limit_of_a_result_is_the_leaders_and_travels_with_the_batch() -> None:
    """Otherwise members with other settings would diverge, now or at a replay."""
    log = Log(Streams(CLASSES, call_result_bytes_max=1000))
    session = log.session()
    results = run(log, session, 1, call("pad", 2000), call("pad", 500), call("add", 1)).results
    assert results is not None
    with pytest.raises(ResultTooLargeError, match=r"counter.pad\(\) was carried out; its result of 2,0"):
        decode_result(results[0])
    assert decode_result(results[1]) == b"x" * 500
    for other in (1, 1_000_000):
        follower = Streams(CLASSES, call_result_bytes_max=other)
        for batch in log.applied:
            follower.apply(batch)
        assert follower.chain == log.machine.chain
        assert follower.query(OutcomeQuery(session=session, sequence=1)) == log.machine.query(
            OutcomeQuery(session=session, sequence=1)
        )


def test_a_batch_of_a_release_without_a_limit_is_applied_without_one() -> None:
    log = Log(Streams(CLASSES, call_result_bytes_max=1000))
    session = log.session()
    log.propose(commands(session, 1, call("pad", 2000)))
    log.unapplied[0].first_position = Position(0)
    result = log.apply()
    assert isinstance(result, CommandResults)
    assert result.results is not None
    assert decode_result(result.results[0]) == b"x" * 2000
