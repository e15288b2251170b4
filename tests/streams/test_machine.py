from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_origin

import pytest

from tests.streams.actors import Counter, arguments
from tests.streams.log import (
    Log,
    Stager,
    commit,
    configure_topic,
    create_topic,
    fence,
    first_position,
    open_session,
    records,
    restored,
    trim_topic,
)
from viewstamp.errors import (
    CorruptionError,
    OverloadedError,
    PositionMismatchError,
    RequestError,
    StaleSessionError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.ids import GROUP_0, GlobalPosition, GroupId, Index, NodeId, Position, Sequence, Stream, Term
from viewstamp.node.actor_owners import ActorSpreadingQuery, OwnedQuery, SpreadActorsQuery
from viewstamp.node.archive_queries import (
    ArchiveQuery,
    DueRunsQuery,
    IsArchivingQuery,
    NewestRunsQuery,
    OrphansQuery,
    ReleasedRunsQuery,
    RunAtQuery,
    RunQuery,
    RunsQuery,
    UnneededRunsQuery,
)
from viewstamp.node.keyed_queries import (
    DueKeysQuery,
    IsKeyedUsedQuery,
    KeyedViewQuery,
    KeyRunQuery,
    KeyRunsQuery,
    UnneededKeysQuery,
)
from viewstamp.node.order_queries import (
    CoverQuery,
    FirstFromQuery,
    GlobalPositionQuery,
    GlobalRecordQuery,
    HomeCutQuery,
    MissingRunsQuery,
    MovedStreamsQuery,
    OrderedRunsQuery,
    OrderStatusQuery,
    OrderTail,
    OrderTailQuery,
    StreamReportsQuery,
    TopicOrderQuery,
)
from viewstamp.node.placement_queries import (
    CancelledGroupsQuery,
    FreeGroupsQuery,
    GroupsQuery,
    PlacementQuery,
    RemovedGroupsQuery,
    SealableQuery,
    SealedStreamQuery,
    SpreadingQuery,
    SpreadTopicQuery,
    SpreadTopicsQuery,
)
from viewstamp.node.schema_queries import HasSchemaQuery
from viewstamp.node.sink_part_queries import (
    GroupPartsQuery,
    HasPartsCommitsQuery,
    HasSealedPartsQuery,
    PartFatesQuery,
    ReleasableQuery,
)
from viewstamp.node.state_machine import (
    Accepted,
    ActorChangesQuery,
    ActorQuery,
    ActorsQuery,
    Answered,
    AuditQuery,
    CommitEffectQuery,
    FirstPositionQuery,
    InterfaceQuery,
    LastPositionQuery,
    LocationQuery,
    OutcomeQuery,
    Placement,
    Query,
    SinkQuery,
    SinksQuery,
    SplitQuery,
    TimeQuery,
    TokensQuery,
    TopicQuery,
    TopicsQuery,
    Waiting,
)
from viewstamp.streams import Streams
from viewstamp.streams.session import RECEIPTS_MAX
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.keying import encode_configure_keyed
from viewstamp.wire.ordering import StreamReport, encode_order
from viewstamp.wire.placing import encode_hosted, encode_place
from viewstamp.wire.spread_actors import encode_spread_actor
from viewstamp.wire.spreading import encode_spread


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def stamped(batch: Batch, index: int, position: int) -> Batch:
    batch.stamp(
        term=Term(1), first_index=Index(index), previous_term=Term(1), log_time=0, first_position=Position(position)
    )
    return batch


# Positions.


def test_positions_run_from_one_without_gaps_in_each_topic(log: Log) -> None:
    orders, bills = log.topic("orders"), log.topic("bills")
    session = log.session()
    assert log.append(orders, session, 1, count=3).first_position == 1
    assert log.append(bills, session, 2, count=2).first_position == 1
    assert log.append(orders, session, 3).first_position == 4


def test_a_leader_gives_positions_to_batches_that_are_not_applied_yet(log: Log) -> None:
    topic, session = log.topic(), log.session()
    firsts = [first_position(log.propose(records(topic, session, n, count=10))) for n in (1, 2, 3)]
    assert firsts == [1, 11, 21]


def test_a_receipt_contains_the_place_of_the_batch(log: Log) -> None:
    topic, session = log.topic(), log.session()
    index = log.next_index
    assert log.append(topic, session, 1, count=5) == Placement(Position(1), 5, Term(1), Index(index), 1000 + index)


def test_a_new_leader_starts_again_from_the_applied_state(log: Log) -> None:
    """Batches that the old leader admitted and lost must not leave a hole in positions or sequences."""
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1, count=7))
    log.machine.stop_leading()
    log.machine.stop_leading()
    newer = Log(log.machine, first_index=log.next_index - 7, term=2)
    assert first_position(newer.propose(records(topic, session, 1, count=2))) == 1


# Sessions.


def test_a_session_id_is_the_index_of_the_record_that_opened_it(log: Log) -> None:
    log.topic()
    index = log.next_index
    assert log.session() == index


def test_a_retry_of_an_applied_batch_gets_the_same_receipt_and_no_place_in_the_log(log: Log) -> None:
    topic, session = log.topic(), log.session()
    receipt = log.append(topic, session, 1, count=2)
    log.append(topic, session, 2)
    assert log.propose(records(topic, session, 1, count=2)) == Answered(receipt)
    assert log.unapplied == []


def test_a_retry_of_a_batch_that_is_still_in_the_log_waits_for_it(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1))
    log.propose(records(topic, session, 2))
    assert log.propose(records(topic, session, 1)) == Waiting()
    assert len(log.unapplied) == 2


def test_a_gap_is_refused_as_not_written_and_names_the_expected_sequence(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1))
    with pytest.raises(UnavailableError, match="at sequence 1, so 3 is out of order") as raised:
        log.propose(records(topic, session, 3))
    assert "from sequence 2" in raised.value.remedy
    assert isinstance(log.propose(records(topic, session, 2)), Accepted)


def test_a_batch_of_an_unknown_session_is_refused(log: Log) -> None:
    topic = log.topic()
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, 77, 1))


def test_a_batch_without_a_session_or_a_sequence_is_refused(log: Log) -> None:
    """Because a retry would look like a new append without them."""
    topic, session = log.topic(), log.session()
    with pytest.raises(RequestError):
        log.propose(records(topic, 0, 0))
    with pytest.raises(RequestError):
        log.propose(records(topic, session, 0))


def test_a_batch_for_an_unknown_topic_is_refused_and_uses_no_sequence(log: Log) -> None:
    session = log.session()
    with pytest.raises(UnknownTopicError):
        log.propose(records(5, session, 1))
    topic = log.topic()
    assert isinstance(log.propose(records(topic, session, 1)), Accepted)


def test_a_retry_older_than_the_kept_receipts_is_stale(log: Log) -> None:
    topic, session = log.topic(), log.session()
    receipts = [log.append(topic, session, n) for n in range(1, RECEIPTS_MAX + 2)]
    assert log.propose(records(topic, session, 2)) == Answered(receipts[1])
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, session, 1))


def test_the_least_recently_used_session_is_forgotten_first() -> None:
    log = Log(Streams(sessions_max=2))
    topic, older, newer = log.topic(), log.session(), log.session()
    log.append(topic, older, 1)
    log.session()
    assert isinstance(log.propose(records(topic, older, 2)), Accepted)
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, newer, 1))


def test_a_batch_of_a_session_that_is_about_to_be_forgotten_does_not_enter_the_log() -> None:
    """The batch would get positions in the log, but no client could get its receipt after the end of the session."""
    log = Log(Streams(sessions_max=1))
    topic, session = log.topic(), log.session()
    log.propose(open_session())
    with pytest.raises(UnavailableError, match="about to end"):
        log.propose(records(topic, session, 1))
    with pytest.raises(OverloadedError):
        log.propose(open_session())
    log.apply()
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, session, 1))


def test_no_session_is_opened_while_the_session_that_it_replaces_is_undecided() -> None:
    """If the limit of sessions is reached, a new session replaces the oldest one.

    The record that opens the oldest one may not be applied yet, and a client could use it before the record that ends
    it.
    """
    log = Log(Streams(sessions_max=2))
    topic, session = log.topic(), log.session()
    log.propose(open_session())
    log.propose(records(topic, session, 1))
    with pytest.raises(OverloadedError):
        log.propose(open_session())


# Fences.


def test_a_fence_of_an_applied_sequence_answers_its_receipt(log: Log) -> None:
    topic, session = log.topic(), log.session()
    receipt = log.append(topic, session, 1)
    assert log.propose(fence(session, 1)) == Answered(receipt)


def test_a_fence_behind_its_batch_in_the_log_answers_the_receipt(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1, count=2))
    result = log.run(fence(session, 1))
    assert isinstance(result, Placement)
    assert result.count == 2


def test_a_fenced_sequence_is_never_applied_and_the_next_one_goes_on(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1)
    assert log.run(fence(session, 3)) is None
    for sequence in (2, 3):
        assert log.propose(records(topic, session, sequence)) == Answered(None)
        assert log.propose(fence(session, sequence)) == Answered(None)
    assert log.append(topic, session, 4).first_position == 2


def test_a_copy_that_arrives_while_its_fence_is_in_the_log_is_refused(log: Log) -> None:
    """It must not enter the log, nor wait for a batch that will never be applied."""
    topic, session = log.topic(), log.session()
    log.propose(fence(session, 2))
    for sequence in (1, 2):
        with pytest.raises(UnavailableError, match="being fenced"):
            log.propose(records(topic, session, sequence))
    log.propose(records(topic, session, 3))
    assert log.apply() is None
    assert log.propose(records(topic, session, 2)) == Answered(None)
    assert log.propose(records(topic, session, 3)) == Waiting()


def test_a_fence_far_ahead_costs_no_more_than_the_kept_receipts(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1)
    far = 1 << 60
    assert log.run(fence(session, far)) is None
    assert log.propose(records(topic, session, far)) == Answered(None)
    with pytest.raises(StaleSessionError):
        log.propose(records(topic, session, 1))
    assert log.append(topic, session, far + 1).first_position == 2


def test_a_fence_needs_a_known_session_and_a_sequence(log: Log) -> None:
    with pytest.raises(StaleSessionError):
        log.propose(fence(9, 1))
    session = log.session()
    with pytest.raises(RequestError):
        log.propose(fence(session, 0))


# Topics.


def test_creating_a_topic_twice_gives_the_same_topic(log: Log) -> None:
    first = log.topic("orders")
    session = log.session()
    log.append(first, session, 1, count=2)
    again = log.run(create_topic("orders"))
    assert again == {"topic": log.machine.query(TopicQuery(name="orders"))}
    assert log.topic("orders") == first


def test_two_creations_of_a_name_in_the_log_make_one_topic(log: Log) -> None:
    log.propose(create_topic("orders"))
    log.propose(create_topic("orders"))
    assert log.apply() == log.apply()


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", "x" * 129, "a\n", 7, None])
def test_a_forbidden_topic_name_is_refused_on_admission_and_on_application(log: Log, name: object) -> None:
    with pytest.raises(RequestError):
        log.propose(create_topic(name))
    with pytest.raises(RequestError):
        log.machine.apply(stamped(create_topic(name), 1, 0))


@pytest.mark.parametrize("name", ["-rf", ".", "..", ".hidden"])
def test_a_topic_with_a_forbidden_name_of_an_earlier_version_goes_on(log: Log, name: str) -> None:
    """Only the leader refuses new ones, because members of all releases must apply the log alike."""
    with pytest.raises(RequestError, match="a new topic cannot be named"):
        log.propose(create_topic(name))
    log.enter(create_topic(name))
    assert log.topic(name) == log.describe(name)["id"]
    log.append(log.topic(name), log.session(), 1)
    log.run(configure_topic(name, retain_bytes=1000))
    log.run(trim_topic(name, 2))
    assert log.describe(name)["first_position"] == 2


def test_topic_settings_that_cannot_be_read_are_refused(log: Log) -> None:
    for settings in (b"", b"\xc1", b"\x01"):
        with pytest.raises(RequestError):
            log.propose(build_batch([settings], kind=Kind.CREATE_TOPIC))


def test_the_number_of_topics_is_bounded_and_the_refusal_is_replicated() -> None:
    log = Log(Streams(topics_max=1))
    log.propose(create_topic("a"))
    log.propose(create_topic("b"))
    log.apply()
    with pytest.raises(RequestError):
        log.apply()
    assert log.topic("a") == 1
    with pytest.raises(RequestError):
        log.propose(create_topic("b"))


def test_topics_are_described_and_listed_in_order_of_creation(log: Log) -> None:
    topic, session = log.topic("b"), log.session()
    log.topic("a")
    log.append(topic, session, 1, count=3, size=10)
    listed = log.machine.query(TopicsQuery())
    kept = {"retain_bytes": 0, "retain_seconds": 0.0}
    assert listed == [
        {"id": 1, "name": "b", "first_position": 1, "last_position": 3, "bytes": records(1, 1, 1, 3, 10).size, **kept},
        {"id": 2, "name": "a", "first_position": 1, "last_position": 0, "bytes": 0, **kept},
    ]
    assert log.machine.query(TopicQuery(name="b")) == listed[0]
    with pytest.raises(UnknownTopicError):
        log.machine.query(TopicQuery(name="c"))


def test_any_position_is_located_at_or_before_its_batch_with_a_short_scan(log: Log) -> None:
    topic, other, session = log.topic("a"), log.topic("b"), log.session()
    starts = []
    for n in range(1, 400):
        busy = n % 3 == 0
        receipt = log.append(other if busy else topic, session, n, count=1 + n % 4, size=4000)
        if not busy:
            starts.append(receipt)
    for receipt in starts:
        for position in range(receipt.first_position, receipt.first_position + receipt.count):
            found = log.machine.query(LocationQuery(topic=topic, position=position))[0]
            assert isinstance(found, int)
            assert found <= receipt.first_index
            between = [r for r in starts if found <= r.first_index < receipt.first_index]
            assert sum(r.count for r in between) * 4000 <= 64 * 1024 + 5 * 4100


def test_a_busy_log_does_not_make_the_scan_for_a_quiet_topic_long(log: Log) -> None:
    quiet, busy, session = log.topic("quiet"), log.topic("busy"), log.session()
    log.append(quiet, session, 1)
    for n in range(2, 7):
        log.append(busy, session, n, size=500_000)
    receipt = log.append(quiet, session, 7)
    assert log.machine.query(LocationQuery(topic=quiet, position=2))[0] == receipt.first_index


def test_a_position_that_does_not_exist_yet_is_located_behind_all_applied_batches(log: Log) -> None:
    topic, session = log.topic(), log.session()
    assert log.machine.query(LocationQuery(topic=topic, position=1))[0] == log.next_index
    log.append(topic, session, 1, count=3)
    log.topic("another")
    assert log.machine.query(LocationQuery(topic=topic, position=4))[0] == log.next_index
    with pytest.raises(UnknownTopicError):
        log.machine.query(LocationQuery(topic=9, position=1))


def test_every_query_has_an_answer_of_the_type_that_it_names() -> None:
    """A query without an answer would stop the node with an AssertionError."""
    log = Log(Streams({"counter": Counter}))
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1, count=3)
    group = GroupId(log.next_index)
    log.run(encode_place({NodeId("n1"): "a:1"}, ["s1"], since=0))
    log.run(encode_hosted(group, NodeId("n1"), "0" * 16))
    log.run(encode_spread("bills", [group]))
    log.topic("prices")
    log.run(encode_configure_keyed("prices", is_on=True))
    stream = Stream(group, "bills.1")
    log.run(encode_order([StreamReport(stream, Position(2), Position(1))]))
    asked: list[Query[Any]] = [
        TopicsQuery(),
        TopicQuery("orders"),
        FirstPositionQuery(topic),
        LastPositionQuery(topic),
        LocationQuery(topic, Position(2)),
        CommitEffectQuery(Index(1)),
        SplitQuery("orders", 1, 3, 1000),
        TimeQuery("orders", 0),
        SinksQuery(),
        GroupsQuery(),
        CancelledGroupsQuery(),
        RemovedGroupsQuery(),
        RunAtQuery(topic, Position(2)),
        NewestRunsQuery(1),
        ReleasedRunsQuery(Index(1)),
        PlacementQuery(encode_place({NodeId("n1"): "a:1"}, ["s1"], since=0)),
        SpreadTopicsQuery(),
        SpreadTopicQuery("bills"),
        SpreadingQuery(encode_spread("bills", [group])),
        FreeGroupsQuery(2),
        SealableQuery([StreamReport(stream, Position(2), Position(1), is_sealed=True)]),
        SealedStreamQuery("orders"),
        GroupPartsQuery(),
        HasSealedPartsQuery(),
        HasPartsCommitsQuery(),
        PartFatesQuery(GroupId(1), (1,)),
        ReleasableQuery({(1, stream): Position(2)}),
        SpreadActorsQuery(),
        ActorSpreadingQuery(encode_spread_actor("inventory", [group])),
        OwnedQuery([("counter", "k")], GROUP_0),
        StreamReportsQuery(group),
        MovedStreamsQuery([StreamReport(stream, Position(3), Position(1))]),
        OrderStatusQuery(),
        HomeCutQuery(),
        FirstFromQuery("bills.1", 1),
        MissingRunsQuery(stream, Position(1), 9),
        OrderedRunsQuery(stream, 1, 9),
        GlobalPositionQuery(stream, 1),
        GlobalRecordQuery(group, "bills", 1),
        TopicOrderQuery("bills"),
        OrderTailQuery(stream, "bills", GlobalPosition(1), 9),
        CoverQuery("orders", GlobalPosition(1), OrderTail(GlobalPosition(1), Position(1), Position(1), ()), 9),
        ArchiveQuery("orders"),
        RunQuery(7),
        RunsQuery(),
        DueRunsQuery(0, is_pressed=False, run_bytes=1, wait=1),
        UnneededRunsQuery(),
        IsArchivingQuery(),
        HasSchemaQuery(),
        KeyedViewQuery("prices"),
        KeyRunQuery(7),
        KeyRunsQuery(),
        UnneededKeysQuery(),
        IsKeyedUsedQuery(),
        DueKeysQuery(0, 1, is_pressed=False),
        OrphansQuery((1,)),
        OutcomeQuery(session, Sequence(1)),
        ActorsQuery(),
        TokensQuery(),
        AuditQuery(0),
        InterfaceQuery("counter"),
        ActorQuery("counter", "", "read", arguments()),
        ActorChangesQuery("counter", None, 0),
    ]
    names = {each.__name__ for each in Query.__subclasses__()}
    assert {type(query).__name__ for query in asked} == names - {"SinkQuery"}
    for query in asked:
        (answer,) = get_args(type(query).__orig_bases__[0])  # type: ignore[attr-defined]
        kinds = get_args(answer) if isinstance(answer, UnionType) else (getattr(answer, "__supertype__", answer),)
        assert isinstance(log.machine.query(query), tuple(get_origin(kind) or kind for kind in kinds)), query
    with pytest.raises(RequestError):
        log.machine.query(SinkQuery("lake"))


def test_an_outcome_is_answered_from_applied_state_only(log: Log) -> None:
    topic, session = log.topic(), log.session()
    receipt = log.append(topic, session, 1)
    log.run(fence(session, 2))
    log.propose(records(topic, session, 3))
    assert log.machine.query(OutcomeQuery(session=session, sequence=1)) == receipt
    assert log.machine.query(OutcomeQuery(session=session, sequence=2)) is None
    with pytest.raises(UnavailableError):
        log.machine.query(OutcomeQuery(session=session, sequence=3))
    with pytest.raises(StaleSessionError):
        log.machine.query(OutcomeQuery(session=1000, sequence=1))


# Divergence.


def test_a_batch_that_contradicts_the_state_stops_the_node(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1)
    follower = restored(log.machine)
    contradictions = [
        stamped(records(topic, session, 2), 10, position=3),
        stamped(records(topic, session, 3), 10, position=2),
        stamped(records(topic, session, 1), 10, position=2),
        stamped(records(topic, 999, 1), 10, position=2),
        stamped(records(7, session, 2), 10, position=1),
        stamped(fence(999, 1), 10, position=0),
    ]
    for batch in contradictions:
        with pytest.raises(CorruptionError):
            follower.apply(batch)


def test_a_membership_record_changes_nothing_here(log: Log) -> None:
    before = log.machine.query(TopicsQuery())
    assert log.run(build_batch([b"members"], kind=Kind.MEMBERSHIP)) is None
    assert log.machine.query(TopicsQuery()) == before


# Images.


def test_a_restored_machine_goes_on_exactly_like_the_original(log: Log) -> None:
    topic, session = log.topic(), log.session()
    for n in range(1, RECEIPTS_MAX + 10):
        log.append(topic, session, n, size=700)
    log.run(fence(session, RECEIPTS_MAX + 11))
    other = restored(log.machine)
    assert other.digest() == log.machine.digest()
    batch = records(topic, session, RECEIPTS_MAX + 12)
    copy = records(topic, session, RECEIPTS_MAX + 12)
    receipt = log.run(batch)
    stamped(copy, batch.first_index, batch.first_position)
    assert isinstance(receipt, Placement)
    result = other.apply(copy)
    assert isinstance(result, Placement)
    assert result.first_position == receipt.first_position
    assert other.query(LocationQuery(topic=topic, position=200)) == log.machine.query(
        LocationQuery(topic=topic, position=200)
    )


def test_digests_differ_where_the_states_differ(log: Log) -> None:
    topic, session = log.topic(), log.session()
    seen = {log.machine.digest()}
    log.append(topic, session, 1)
    seen.add(log.machine.digest())
    log.run(fence(session, 2))
    seen.add(log.machine.digest())
    assert len(seen) == 3


def test_batches_that_were_only_admitted_are_no_part_of_the_digest(log: Log) -> None:
    topic, session = log.topic(), log.session()
    before = log.machine.digest()
    log.propose(records(topic, session, 1))
    assert log.machine.digest() == before


# Appends that expect a position.


def mismatch(log: Log) -> int:
    """Apply an append that must be refused; return the topic's next position from the refusal."""
    with pytest.raises(PositionMismatchError) as refused:
        log.apply()
    return refused.value.actual


def test_the_next_position_of_an_append_counts_unapplied_batches(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1, count=2))
    assert first_position(log.propose(records(topic, session, 2, count=3, expected=3))) == 3
    assert first_position(log.propose(records(topic, session, 3))) == 6


def test_an_append_at_a_taken_position_is_refused_by_a_record_after_the_one_that_took_it(log: Log) -> None:
    """The record that has the position may still be cut off.

    Then the refusal after it is cut off too, before a client has received it.
    """
    topic, session, other = log.topic(), log.session(), log.session()
    log.propose(records(topic, other, 1))
    log.propose(records(topic, session, 1, expected=1))
    unapplied, log.unapplied = log.unapplied, []
    assert [batch.kind for batch in unapplied] == [Kind.RECORDS, Kind.FENCE]
    log.machine.stop_leading()
    log = Log(log.machine, first_index=unapplied[0].first_index, term=2)
    assert first_position(log.propose(records(topic, session, 1, expected=1))) == 1


@pytest.mark.parametrize("expected", [1, 3, 1 << 62])
def test_a_refusal_decides_its_sequence_and_takes_no_position(log: Log, expected: int) -> None:
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1)
    log.propose(records(topic, session, 2, expected=expected))
    log.propose(records(topic, session, 3))
    assert mismatch(log) == 2
    assert isinstance(log.apply(), Placement)
    assert log.describe()["last_position"] == 2
    assert log.propose(fence(session, 2)) == Answered(None)
    with pytest.raises(PositionMismatchError, match=f"'orders' is 2, not {expected}") as refused:
        log.propose(records(topic, session, 2, expected=expected))
    assert refused.value.actual == 2
    assert not log.unapplied


def test_a_retry_of_an_append_that_stood_where_it_was_expected_answers_its_receipt(log: Log) -> None:
    topic, session = log.topic(), log.session()
    batch = records(topic, session, 1, expected=1)
    assert log.propose(batch) == Accepted(Position(1))
    assert isinstance(log.propose(records(topic, session, 1, expected=1)), Waiting)
    receipt = log.apply()
    log.append(topic, session, 2)
    assert log.propose(records(topic, session, 1, expected=1)) == Answered(receipt)


def test_a_copy_of_an_append_whose_refusal_is_in_the_log_waits_for_that(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1, expected=2))
    with pytest.raises(UnavailableError, match="being fenced"):
        log.propose(records(topic, session, 1, expected=2))
    assert mismatch(log) == 1


def test_a_refusal_is_part_of_a_snapshot_and_members_agree(log: Log) -> None:
    topic, session = log.topic(), log.session()
    log.propose(records(topic, session, 1, expected=2))
    assert mismatch(log) == 1
    member = Streams()
    for batch in log.applied[:-1]:
        member.apply(batch)
    with pytest.raises(PositionMismatchError):
        member.apply(log.applied[-1])
    for other in (restored(log.machine), member):
        assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
        other.begin_leading()
        with pytest.raises(PositionMismatchError):
            other.admit(records(topic, session, 1, expected=2))


def test_an_append_at_a_position_is_refused_while_a_commit_is_being_decided(log: Log) -> None:
    topic, stager = log.topic(), Stager(log)
    session = log.session()
    log.propose(commit(stager.sealed((topic, 2))))
    with pytest.raises(UnavailableError, match="a sink's commit to topic"):
        log.propose(records(topic, session, 1, expected=3))
    log.apply()
    assert first_position(log.propose(records(topic, session, 1, expected=3))) == 3
