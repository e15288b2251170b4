"""The promises of sinks: one COMMIT makes a batch visible, whole and once; a repeated one gets the same result."""

from __future__ import annotations

import itertools

import pytest

from tests.streams.log import (
    Log,
    Stager,
    abort,
    begin,
    command,
    commit,
    entries,
    forget,
    pieces,
    records,
    restored,
    seal,
    staged,
)
from viewstamp.errors import (
    FencedError,
    OverloadedError,
    RequestError,
    StagingError,
    UnavailableError,
    UnknownTopicError,
)
from viewstamp.node.state_machine import (
    Accepted,
    Answered,
    CommandResults,
    CommitEffectQuery,
    LocationQuery,
    SinkQuery,
    SinksQuery,
    SplitQuery,
    TimeQuery,
)
from viewstamp.streams import Streams
from viewstamp.streams.staging import SinkState, Staging
from viewstamp.wire.batch import Kind

SECOND = 1_000_000


@pytest.fixture
def log() -> Log:
    return Log(Streams())


@pytest.fixture
def stager(log: Log) -> Stager:
    return Stager(log)


# Visibility.


def test_staged_records_have_no_position_before_a_commit(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3), (topic, 2))
    assert log.describe()["last_position"] == 0
    committed = stager.commit(part)
    assert committed["ranges"] == [["orders", 1, 5]]
    assert not committed["duplicate"]
    assert log.describe()["last_position"] == 5


def test_a_commit_places_its_parts_in_their_order_over_all_topics_at_once(log: Log, stager: Stager) -> None:
    orders, notes = log.topic("orders"), log.topic("notes")
    log.append(notes, log.session(), 1, count=4)
    first = stager.sealed((orders, 3), (notes, 1), name="p0")
    second = stager.sealed((notes, 2), name="p1")
    assert stager.commit(second, first)["ranges"] == [["notes", 5, 3], ["orders", 1, 3]]
    assert (log.describe("orders")["last_position"], log.describe("notes")["last_position"]) == (3, 7)


def test_records_appended_behind_a_commit_go_on_where_it_ended(log: Log, stager: Stager) -> None:
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1, count=2)
    stager.commit(stager.sealed((topic, 5)))
    assert log.append(topic, session, 2).first_position == 8


def test_a_commit_without_parts_moves_the_sink_on(log: Log, stager: Stager) -> None:
    """A batch without records is committed too, so that its number counts as done after a restart of the program."""
    stager.begin()
    assert stager.commit(batch=0)["ranges"] == []
    assert stager.sink()["batch"] == 0


def test_the_retry_of_a_staged_batch_gets_its_receipt(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt = stager.begin()
    batch = stager.stage(attempt, topic, count=2)
    answer = log.propose(staged(attempt, topic, stager.session, stager.sequence, count=2))
    assert isinstance(answer, Answered)
    assert isinstance(answer.result, CommandResults)
    assert (answer.result.receipt.first_index, answer.result.receipt.count) == (batch.first_index, 2)
    assert stager.sink()["bytes"] == batch.size


# Once.


def test_a_repeated_commit_gets_the_first_answer(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3))
    first = stager.commit(part)
    again = log.propose(commit(part))
    assert isinstance(again, Answered)
    assert again.result == {"commit": first | {"duplicate": True}}
    assert log.describe()["last_position"] == 3


def test_two_copies_of_a_commit_in_the_log_have_one_effect(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3))
    assert isinstance(log.propose(commit(part)), Accepted)
    assert isinstance(log.propose(commit(part)), Accepted)
    index = log.unapplied[1].first_index
    first, second = log.apply(), log.apply()
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert second["commit"] == {**first["commit"], "duplicate": True}  # type: ignore[dict-item]
    assert log.describe()["last_position"] == 3
    for machine in (log.machine, restored(log.machine)):
        assert machine.query(CommitEffectQuery(index=index - 1))
        assert not machine.query(CommitEffectQuery(index=index))


def test_a_refused_commit_in_the_log_is_known_to_have_had_no_effect(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3))
    log.propose(abort())
    log.propose(commit(part))
    index = log.unapplied[1].first_index
    log.apply()
    with pytest.raises(StagingError, match="does not exist"):
        log.apply()
    assert not log.machine.query(CommitEffectQuery(index=index))
    assert log.append(topic, log.session(), 1).first_position == 1


def test_an_earlier_batch_is_a_duplicate_without_its_ranges(log: Log, stager: Stager) -> None:
    topic = log.topic()
    stager.commit(stager.sealed((topic, 1)))
    stager.commit(stager.sealed((topic, 1), batch=7), batch=7)
    answer = log.propose(commit(batch=3))
    assert isinstance(answer, Answered)
    assert answer.result == {
        "commit": {"sink": "s", "batch": 3, "duplicate": True, "ranges": None, "index": 0, "log_time": 0}
    }


def test_a_begin_for_a_committed_batch_is_answered_without_an_entry(log: Log, stager: Stager) -> None:
    part = stager.sealed((log.topic(), 3))
    committed = stager.commit(part)
    answer = log.propose(begin(run="r2"))
    assert isinstance(answer, Answered)
    assert answer.result == {"attempt": 0, "commit": committed | {"duplicate": True}}


def test_a_new_run_may_repeat_a_commit_that_it_knows_of(log: Log, stager: Stager) -> None:
    stager.commit(stager.sealed((log.topic(), 3)))
    answer = log.propose(commit(run="r2"))
    assert isinstance(answer, Answered)


def test_a_begin_repeated_finds_its_attempt(log: Log, stager: Stager) -> None:
    attempt = stager.begin(name="p0")
    assert stager.begin(name="p0") == attempt
    assert stager.begin(name="p1") != attempt


# Together or not at all.


def test_an_attempt_must_be_sealed_before_its_commit(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt = stager.begin()
    batch = stager.stage(attempt, topic)
    with pytest.raises(StagingError, match="not sealed"):
        log.propose(commit((attempt, entries(batch))))


@pytest.mark.parametrize("of", ["nothing", "another batch", "another sink", "twice", "other entries"])
def test_a_commit_of_an_attempt_that_is_not_its_own_is_refused_whole(of: str, log: Log, stager: Stager) -> None:
    topic = log.topic()
    mine = stager.sealed((topic, 2))
    later = stager.sealed((topic, 1), batch=1, name="p1")
    other = stager.sealed((topic, 1), sink="t")
    parts = {
        "nothing": [mine, (999, b"")],
        "another batch": [mine, later],
        "another sink": [mine, other],
        "twice": [mine, mine],
        "other entries": [(mine[0], later[1])],
    }
    with pytest.raises(StagingError):
        log.propose(commit(*parts[of]))
    assert log.describe()["last_position"] == 0
    assert stager.commit(mine)["ranges"] == [["orders", 1, 2]]


def test_a_seal_that_differs_from_the_staged_batches_is_refused(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt = stager.begin()
    one, two = stager.stage(attempt, topic), stager.stage(attempt, topic)
    for wrong in (entries(one), entries(two, one), b""):
        with pytest.raises(StagingError, match="holds 2 batches"):
            log.run(seal(attempt, wrong))
    log.run(seal(attempt, entries(one, two)))
    assert log.run(seal(attempt, entries(one, two))) == {}, "a repeated seal is as good as one"


def test_nothing_is_staged_into_a_sealed_attempt(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt, held = stager.sealed((topic, 1))
    with pytest.raises(StagingError, match="sealed"):
        log.propose(staged(attempt, topic, stager.session, stager.sequence + 1))
    assert stager.commit((attempt, held))["ranges"] == [["orders", 1, 1]]


def test_a_staged_batch_is_dropped_if_its_attempt_ended_before_it_was_applied(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt = stager.begin()
    log.propose(abort())
    log.propose(staged(attempt, topic, stager.session, 1))
    log.apply()
    log.apply()
    assert (stager.sink()["attempts"], stager.sink()["bytes"]) == (0, 0)
    assert log.machine.keep_from() is None
    with pytest.raises(StagingError, match="does not exist"):
        log.run(seal(attempt, b""))


# Late runs, owners and attempts.


def test_a_new_run_drops_the_attempts_of_earlier_ones_and_fences_them(log: Log, stager: Stager) -> None:
    topic = log.topic()
    old = stager.sealed((topic, 3))
    new = stager.sealed((topic, 2), run="r2")
    assert stager.sink()["attempts"] == 1
    for late in (begin(name="p9"), begin(batch=5, name="p9"), commit(old)):
        with pytest.raises(FencedError, match="superseded by 'r2'"):
            log.propose(late)
    assert stager.commit(new, run="r2")["ranges"] == [["orders", 1, 2]]


def test_a_run_that_staged_nothing_cannot_commit(log: Log, stager: Stager) -> None:
    part = stager.sealed((log.topic(), 3))
    with pytest.raises(FencedError, match="began no attempt"):
        log.propose(commit(part, run="r2"))


def test_another_owner_is_refused_unless_it_resets(log: Log, stager: Stager) -> None:
    topic = log.topic()
    stager.commit(stager.sealed((topic, 3), batch=8), batch=8)
    leftover = stager.sealed((topic, 9), batch=9)
    with pytest.raises(FencedError, match="belongs to 'q', which committed batch 8; this is 'q2'") as refused:
        log.propose(begin(owner="q2"))
    assert "sinkReset" in refused.value.remedy
    with pytest.raises(FencedError):
        log.propose(commit(owner="q2"))
    part = stager.sealed((topic, 1), owner="q2", run="r2", reset=True)
    assert stager.commit(part, owner="q2", run="r2")["ranges"] == [["orders", 4, 1]]
    with pytest.raises(FencedError):
        log.propose(commit(leftover, batch=9))
    with pytest.raises(FencedError, match="until 'q2' took it over"):
        log.propose(begin(owner="q", run="r3", reset=True))


def test_a_reset_by_the_owner_itself_changes_nothing(log: Log, stager: Stager) -> None:
    topic = log.topic()
    stager.commit(stager.sealed((topic, 3)))
    assert isinstance(log.propose(begin(reset=True)), Answered)


def test_an_abort_drops_one_batch_of_its_own_run_or_one_attempt(log: Log, stager: Stager) -> None:
    topic = log.topic()
    one, two = stager.sealed((topic, 1), name="p0"), stager.sealed((topic, 1), name="p1")
    later = stager.sealed((topic, 1), batch=1, name="p2")
    log.run(abort(run="another"))
    assert stager.sink()["attempts"] == 3
    log.run(abort(attempt=one[0]))
    assert stager.sink()["attempts"] == 2
    log.run(abort())
    with pytest.raises(StagingError):
        log.propose(commit(two))
    assert stager.commit(later, batch=1)["ranges"] == [["orders", 1, 1]]


def test_an_abort_behind_a_commit_undoes_nothing(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3))
    stager.commit(part)
    log.run(abort())
    assert log.describe()["last_position"] == 3
    assert isinstance(log.propose(commit(part)), Answered)


def test_a_commit_drops_other_attempts_up_to_its_batch(log: Log, stager: Stager) -> None:
    topic = log.topic()
    stager.sealed((topic, 1), name="a failed try")
    kept = stager.sealed((topic, 1), batch=2, name="p2")
    stager.commit(stager.sealed((topic, 1), batch=1), batch=1)
    assert (stager.sink()["attempts"], stager.sink()["sealed"]) == (1, 1)
    stager.commit(kept, batch=2)
    assert stager.sink()["bytes"] == 0


def test_an_idle_attempt_is_dropped_by_the_logs_time(log: Log, stager: Stager) -> None:
    topic = log.topic()
    attempt = stager.begin(keep_seconds=10)
    log.seconds += 9
    stager.stage(attempt, topic)
    log.seconds += 9
    log.session()
    assert stager.sink()["attempts"] == 1
    log.seconds += 2
    log.session()
    assert (stager.sink()["attempts"], stager.sink()["bytes"]) == (0, 0)


def test_a_leader_lets_time_pass_if_only_that_can_drop_an_attempt(log: Log, stager: Stager) -> None:
    """A full quota, or a full log, accepts no other records. One such record is enough, however late it is applied."""
    log.topic()
    stager.begin(keep_seconds=10)
    began = log.applied[-1].log_time
    later = began + 11_000_000
    assert log.machine.upkeep(began, began + 9_000_000) is None
    batch = log.machine.upkeep(began, later)
    assert batch is not None
    assert log.machine.upkeep(later, later) is None, "a record of that time is in the log already"
    log.seconds += 11
    assert log.run(batch) == {}
    assert stager.sink()["attempts"] == 0
    assert log.machine.upkeep(began, later) is None


def test_an_attempt_too_old_for_a_limited_log_is_dropped(log: Log, stager: Stager) -> None:
    topic, session = log.topic(), log.session()
    attempt = stager.begin(keep_bytes=2000)
    stager.stage(attempt, topic)
    kept = stager.begin(name="p1", keep_bytes=50_000)
    log.append(topic, session, 1, size=1500)
    assert stager.sink()["attempts"] == 2
    log.append(topic, session, 2, size=200)
    log.append(topic, session, 3)
    assert (stager.sink()["attempts"], stager.sink()["bytes"]) == (1, 0)
    assert stager.begin(name="p1") == kept


def test_a_forgotten_sink_begins_anew(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3))
    stager.commit(part)
    stager.begin(batch=1)
    assert log.run(forget()) == {}
    with pytest.raises(RequestError, match="no sink is named 's'"):
        stager.sink()
    with pytest.raises(StagingError, match="nothing was staged"):
        log.propose(commit(part))
    with pytest.raises(RequestError, match="no sink"):
        log.run(forget())
    assert log.machine.query(SinksQuery()) == []


def sink_names(log: Log) -> list[str]:
    return [sink["name"] for sink in log.machine.query(SinksQuery())]


def test_a_sink_of_one_write_is_forgotten_when_its_time_is_over(log: Log, stager: Stager) -> None:
    """No user deletes such a sink, and only ten thousand sinks can exist."""
    topic = log.topic()
    log.run(begin("kept"))
    log.run(abort("kept"))
    part = stager.sealed((topic, 3), forget_seconds=100)
    log.seconds += 90
    stager.commit(part)
    assert stager.sink()["forget_seconds"] == 100
    log.seconds += 99
    log.session()
    assert sink_names(log) == ["kept", "s"]
    log.seconds += 2
    log.session()
    assert sink_names(log) == ["kept"]
    with pytest.raises(StagingError, match="nothing was staged"):
        log.propose(commit(part))


def test_a_sink_with_attempts_is_not_forgotten(log: Log, stager: Stager) -> None:
    """The request to commit them may still arrive."""
    topic = log.topic()
    part = stager.sealed((topic, 3), forget_seconds=100)
    log.seconds += 1000
    log.session()
    assert stager.commit(part)["ranges"] == [["orders", 1, 3]]
    log.run(begin(batch=1, forget_seconds=100))
    log.seconds += 1000
    log.session()
    assert sink_names(log) == ["s"]
    log.seconds += 2601
    log.session()
    assert sink_names(log) == [], "its attempt is too old, too"


def test_a_snapshot_of_a_release_that_kept_every_sink_is_read(log: Log, stager: Stager) -> None:
    stager.commit(stager.sealed((log.topic(), 3)))
    image = Staging()
    (sink,) = log.machine.query(SinksQuery())
    old = SinkState("s", "q")
    old.batch = 0
    image.sinks = {"s": old}
    stored = image.image()
    stored[0] = [each[:9] for each in stored[0]]
    restored_staging = Staging.from_image(stored)
    assert restored_staging.describe(restored_staging.sink("s"))["forget_seconds"] == 0
    restored_staging.expire(10**18, 0)
    assert list(restored_staging.sinks) == ["s"]
    assert sink["forget_seconds"] == 0


# The admission view.


def test_records_wait_while_a_commit_to_their_topic_is_being_decided(log: Log, stager: Stager) -> None:
    topic, other = log.topic("orders"), log.topic("notes")
    session, second = log.session(), log.session()
    part = stager.sealed((topic, 3))
    log.propose(records(topic, session, 1, count=2))
    log.propose(commit(part))
    with pytest.raises(UnavailableError, match="a sink's commit to topic"):
        log.propose(records(topic, session, 2))
    assert isinstance(log.propose(records(other, second, 1)), Accepted)
    for _ in range(3):
        log.apply()
    assert log.append(topic, session, 2).first_position == 6


def test_a_commit_that_was_refused_lets_records_go_on(log: Log, stager: Stager) -> None:
    topic, session = log.topic(), log.session()
    part = stager.sealed((topic, 3))
    log.propose(abort())
    log.propose(commit(part))
    log.apply()
    with pytest.raises(StagingError):
        log.apply()
    assert log.append(topic, session, 1).first_position == 1


def test_beyond_the_quota_staging_waits_for_others_but_not_for_itself() -> None:
    log = Log(Streams(staged_bytes_max=2000))
    one, two, topic = Stager(log), Stager(log), log.topic()
    mine, other = one.begin(), two.begin(sink="t")
    one.stage(mine, topic, size=800)
    two.stage(other, topic, size=600)
    with pytest.raises(OverloadedError, match="the staging quota is 2000 bytes") as refused:
        log.propose(staged(mine, topic, one.session, 2, size=800))
    assert "raise [limits] staged_bytes_max" in refused.value.remedy
    log.run(abort(sink="t"))
    log.propose(staged(mine, topic, one.session, 2, size=800))
    with pytest.raises((OverloadedError, RequestError)):
        log.propose(staged(mine, topic, one.session, 3, size=800))
    log.apply()
    with pytest.raises(RequestError, match="batch 0 of sink 's' holds") as hopeless:
        log.propose(staged(mine, topic, one.session, 3, size=800))
    assert "smaller batches" in hopeless.value.remedy
    assert "[limits] staged_bytes_max" in hopeless.value.message


def test_the_refusal_of_a_derived_quota_names_its_setting() -> None:
    log = Log(Streams(staged_bytes_max=100, staged_quota="[wal] bytes_max, an eighth of which may be staged"))
    stager, topic = Stager(log), log.topic()
    attempt = stager.begin()
    with pytest.raises(RequestError, match=r"\[wal\] bytes_max, an eighth"):
        log.propose(staged(attempt, topic, stager.session, 1, size=800))


def test_a_sink_name_must_be_no_option_and_contain_no_terminal_controls(log: Log) -> None:
    for name in ("-rf", "..", "a\x1b[2J", ""):
        with pytest.raises(RequestError, match="a new sink cannot be named"):
            log.propose(begin(sink=name))


def test_a_sink_with_a_forbidden_name_of_an_earlier_version_goes_on(log: Log) -> None:
    """Its record is applied by every member; only the leader refuses new ones, before they enter the log."""
    log.enter(begin(sink="-rf"))
    assert "-rf" in [sink["name"] for sink in log.machine.query(SinksQuery())]  # type: ignore[attr-defined]
    log.run(begin(sink="-rf", batch=1))


def test_staging_for_an_unknown_topic_is_refused(log: Log, stager: Stager) -> None:
    attempt = stager.begin()
    with pytest.raises(UnknownTopicError):
        log.propose(staged(attempt, 9, stager.session, 1))


@pytest.mark.parametrize(
    "fields",
    [{"batch": -1}, {"batch": 1 << 63}, {"batch": "0"}, {"sink": 5}, {"sink": "x" * 257}, {"reset": 1}, {"name": None}],
)
def test_a_begin_with_a_wrong_field_is_refused(fields: dict[str, object], log: Log) -> None:
    with pytest.raises(RequestError):
        log.run(begin(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [None, [[1]], [[0, b""]], [[1, b"x" * 19]], [[1, "text"]], [5]])
def test_a_commit_with_parts_that_are_none_is_refused(parts: object, log: Log, stager: Stager) -> None:
    stager.begin()
    with pytest.raises(RequestError):
        log.propose(command(Kind.COMMIT, sink="s", owner="q", run="r", batch=0, parts=parts))


# The log below it.


def test_the_log_is_kept_for_staged_and_for_placed_records(log: Log, stager: Stager) -> None:
    topic, other, session = log.topic("orders"), log.topic("notes"), log.session()
    part = stager.sealed((topic, 3))
    lowest = log.machine.keep_from()
    assert lowest is not None
    assert "sink 's'" in log.machine.explain_kept()
    log.append(other, session, 1)
    stager.commit(part)
    log.append(topic, session, 2)
    assert log.machine.keep_from() == lowest
    assert "topic 'orders'" in log.machine.explain_kept()
    log.run(command(Kind.TRIM_TOPIC, name="orders", position=5))
    assert log.machine.keep_from() == lowest + 4, "the other topic's, behind three staged records and a seal"


def test_a_trim_inside_a_commit_keeps_all_of_its_batches(log: Log, stager: Stager) -> None:
    topic = log.topic()
    part = stager.sealed((topic, 3), (topic, 3))
    lowest = log.machine.keep_from()
    stager.commit(part)
    log.run(command(Kind.TRIM_TOPIC, name="orders", position=6))
    assert log.machine.keep_from() == lowest
    assert log.machine.query(LocationQuery(topic=topic, position=6)) == (log.next_index - 2, 1)


@pytest.mark.parametrize("moment", ["staged", "sealed", "committed"])
def test_a_snapshot_at_any_moment_contains_the_sinks(moment: str, log: Log, stager: Stager) -> None:
    topic = log.topic()
    log.append(topic, log.session(), 1, count=2)
    attempt = stager.begin()
    held = entries(stager.stage(attempt, topic, 3), stager.stage(attempt, topic, 1))
    steps = {"sealed": seal(attempt, held), "committed": commit((attempt, held))}
    taken, state = 0, b""
    for step in ("staged", "sealed", "committed"):
        if step in steps:
            log.run(steps[step])
        if step == moment:
            whole, taken = list(pieces(log.machine.begin_snapshot())), len(log.applied)
    other = Streams()
    other.adopt(other.prepare(whole))
    for batch in log.applied[taken:]:
        other.apply(batch)
    state = log.machine.digest()
    assert other.digest() == state
    assert other.chain == log.machine.chain
    assert other.query(SinkQuery(name="s")) == stager.sink()
    assert other.query(LocationQuery(topic=topic, position=4)) == log.machine.query(
        LocationQuery(topic=topic, position=4)
    )
    assert other.keep_from() == log.machine.keep_from()


def test_a_topic_is_divided_by_bytes_and_by_time(log: Log, stager: Stager) -> None:
    topic, session = log.topic(), log.session()
    for sequence in range(1, 101):
        log.seconds += 1
        log.append(topic, session, sequence, count=10, size=1000)
    positions = log.machine.query(SplitQuery(name="orders", start=101, end=901, bytes=100_000))
    assert isinstance(positions, list)
    assert positions == sorted(set(positions))
    assert (positions[0], positions[-1]) == (101, 901)
    assert all(80 <= b - a <= 110 for a, b in itertools.pairwise(positions)), positions
    assert log.machine.query(SplitQuery(name="orders", start=5, end=5, bytes=1)) == [5]
    with pytest.raises(RequestError, match="cannot be divided"):
        log.machine.query(SplitQuery(name="orders", start=5, end=1002, bytes=1))
    found = log.machine.query(TimeQuery(name="orders", timestamp=50 * SECOND + 1000))
    assert isinstance(found, int)
    assert 411 <= found <= 491
    assert log.machine.query(TimeQuery(name="orders", timestamp=1 << 60)) == 1001
    assert log.machine.query(TimeQuery(name="orders", timestamp=0)) == 1
