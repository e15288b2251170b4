"""The records that topics keep: trims and retention."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.log import Log, configure_topic, create_topic, open_session, records, restored, trim_topic
from viewstamp.errors import RequestError, TopicExistsError, TrimmedError, UnknownTopicError
from viewstamp.node.state_machine import Accepted, FirstPositionQuery, LocationQuery, Placement
from viewstamp.streams import Streams

BATCH = records(1, 1, 1, 1, 1000).size
SPAN = 64 * 1024
"""The precision of retention is this, and one batch."""


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def fill(log: Log, count: int, *, seconds: int = 0, name: str = "orders", **settings: object) -> list[Placement]:
    """Append batches of one record of 1,000 bytes to a topic, ``seconds`` apart."""
    topic, session = log.topic(name, **settings), log.session()
    receipts = []
    for n in range(1, count + 1):
        receipts.append(log.append(topic, session, n, size=1000))
        log.seconds += seconds
    return receipts


def bounds(log: Log, name: str = "orders") -> tuple[int, int]:
    described = log.describe(name)
    return described["first_position"], described["last_position"]


def let_pass(log: Log, seconds: int) -> None:
    """Let the log's time go on, with a batch that concerns no topic."""
    log.seconds += seconds
    log.run(open_session())


# Trims.


def test_a_trim_drops_the_records_below_its_position(log: Log) -> None:
    receipts = fill(log, 200)
    assert log.run(trim_topic("orders", 150)) == {"topic": log.describe()}
    assert bounds(log) == (150, 200)
    assert log.machine.query(FirstPositionQuery(topic=1)) == 150
    assert 51 * BATCH <= log.describe()["bytes"] <= 51 * BATCH + SPAN + BATCH
    found = log.machine.query(LocationQuery(topic=1, position=150))[0]
    assert isinstance(found, int)
    assert receipts[149].first_index - SPAN // BATCH - 1 <= found <= receipts[149].first_index
    assert log.machine.keep_from() == found
    for position in (1, 149):
        with pytest.raises(TrimmedError, match=f"position {position} .* first position is 150") as raised:
            log.machine.query(LocationQuery(topic=1, position=position))
        assert raised.value.first == 150


def test_a_topic_may_be_trimmed_to_nothing_and_its_positions_go_on(log: Log) -> None:
    fill(log, 3)
    log.run(trim_topic("orders", 4))
    assert bounds(log) == (4, 3)
    assert log.describe()["bytes"] == 0
    assert log.machine.keep_from() is None
    with pytest.raises(TrimmedError):
        log.machine.query(LocationQuery(topic=1, position=3))
    receipt = log.append(1, log.session(), 1)
    assert receipt.first_position == 4
    assert log.machine.query(LocationQuery(topic=1, position=4))[0] == log.machine.keep_from() == receipt.first_index


def test_a_trim_inside_a_batch_keeps_the_whole_batch_in_the_log(log: Log) -> None:
    receipt = log.append(log.topic(), log.session(), 1, count=10)
    log.run(trim_topic("orders", 5))
    assert bounds(log) == (5, 10)
    assert log.machine.query(LocationQuery(topic=1, position=5))[0] == log.machine.keep_from() == receipt.first_index


def test_a_trim_never_brings_anything_back_and_may_be_repeated(log: Log) -> None:
    fill(log, 200)
    log.run(trim_topic("orders", 150))
    before, digest = log.describe(), log.machine.query(LocationQuery(topic=1, position=160))
    for position in (150, 10, 1):
        assert log.run(trim_topic("orders", position)) == {"topic": before}
    assert log.machine.query(LocationQuery(topic=1, position=160)) == digest


def test_a_trim_beyond_the_end_is_refused_before_and_in_the_log(log: Log) -> None:
    fill(log, 3)
    with pytest.raises(RequestError, match="ends at position 3, so it cannot be trimmed to 5"):
        log.propose(trim_topic("orders", 5))
    log.propose(trim_topic("orders", 4))
    early = log.unapplied.pop()
    fresh = Log(Streams())
    fresh.topic()
    with pytest.raises(RequestError):
        fresh.machine.apply(early)


def test_a_trim_of_records_that_the_leader_has_not_applied_yet_is_admitted_behind_them(log: Log) -> None:
    """A member may have applied them before, and so a reader may know them."""
    topic, session = log.topic(), log.session()
    log.append(topic, session, 1, count=3)
    log.propose(records(topic, session, 2, 2, 8))
    log.propose(trim_topic("orders", 6))
    with pytest.raises(RequestError, match="ends at position 5, so it cannot be trimmed to 7"):
        log.propose(trim_topic("orders", 7))
    while log.unapplied:
        log.apply()
    assert bounds(log) == (6, 5)


@pytest.mark.parametrize("position", [0, -1, True, 1.5, "1", None])
def test_a_trim_to_something_that_is_no_position_is_refused(log: Log, position: object) -> None:
    fill(log, 3)
    with pytest.raises(RequestError):
        log.propose(trim_topic("orders", position))


def test_an_unknown_topic_is_neither_trimmed_nor_configured(log: Log) -> None:
    for batch in (trim_topic("orders", 1), configure_topic("orders", retain_bytes=1)):
        with pytest.raises(UnknownTopicError):
            log.propose(batch)


# Retention by bytes.


def test_a_topic_keeps_at_least_its_bytes_and_little_more(log: Log) -> None:
    topic, session = log.topic(retain_bytes=200_000), log.session()
    for n in range(1, 1001):
        log.append(topic, session, n, size=1000)
        kept = log.describe()["bytes"]
        assert min(n * BATCH, 200_000) <= kept <= 200_000 + SPAN + 2 * BATCH
    first, last = bounds(log)
    assert last == 1000
    assert (last - first + 1) * BATCH == log.describe()["bytes"]


def test_a_busy_neighbour_does_not_take_a_topics_bytes_away(log: Log) -> None:
    topic, busy, session = log.topic(retain_bytes=5000), log.topic("busy"), log.session()
    log.append(topic, session, 1)
    for n in range(2, 7):
        log.append(busy, session, n, size=500_000)
    log.append(topic, session, 7)
    assert bounds(log) == (1, 2)


# Retention by time.


def test_records_are_dropped_when_they_are_too_old_and_not_much_later(log: Log) -> None:
    """An hour at one record a minute. Trimmed records are older; kept ones are at most a sixteenth of that too old."""
    topic, session = log.topic(retain_seconds=3600), log.session()
    times = []
    for n in range(1, 301):
        times.append(log.append(topic, session, n).log_time)
        first, last = bounds(log)
        assert last == n
        oldest = times[-1] - 3600 * 10**6
        assert all(time <= oldest for time in times[: first - 1])
        assert times[first - 1] >= oldest - (3600 // 16 + 60) * 10**6
        log.seconds += 60
    assert first > 200


def test_an_idle_topic_drops_old_records_as_the_logs_time_goes_on(log: Log) -> None:
    fill(log, 5, retain_seconds=10)
    let_pass(log, 9)
    assert bounds(log) == (1, 5)
    let_pass(log, 2)
    assert bounds(log) == (6, 5)
    assert log.machine.keep_from() is None


def test_retention_is_checked_once_per_second_of_the_logs_time(log: Log) -> None:
    fill(log, 5, retain_seconds=0.0001)
    for _ in range(100):
        log.session()
    assert bounds(log) == (1, 5)
    let_pass(log, 1)
    assert bounds(log) == (6, 5)


def test_the_stricter_of_two_limits_holds(log: Log) -> None:
    fill(log, 200, seconds=1, retain_bytes=10**9, retain_seconds=50)
    assert bounds(log)[0] > 140
    log.run(configure_topic("orders", retain_bytes=1000, retain_seconds=10**6))
    assert bounds(log)[0] > 190


# Settings.


def test_new_settings_take_effect_at_once(log: Log) -> None:
    fill(log, 500, seconds=1)
    assert log.run(configure_topic("orders", retain_bytes=100_000)) == {"topic": log.describe()}
    assert 100_000 <= log.describe()["bytes"] <= 100_000 + SPAN + BATCH
    log.run(configure_topic("orders", retain_seconds=1.5))
    described = log.describe()
    assert (described["retain_bytes"], described["retain_seconds"]) == (100_000, 1.5)
    let_pass(log, 2)
    assert bounds(log) == (501, 500)


def test_retention_is_switched_off_by_zero(log: Log) -> None:
    fill(log, 10, retain_bytes=1, retain_seconds=5)
    log.run(configure_topic("orders", retain_bytes=0, retain_seconds=0))
    let_pass(log, 100)
    assert bounds(log) == (1, 10)


def test_a_quiet_topic_with_a_new_age_limit_gets_finer_entries_from_then_on(log: Log) -> None:
    fill(log, 10, seconds=60)
    log.run(configure_topic("orders", retain_seconds=160))
    session = log.session()
    for n in range(1, 20):
        log.append(1, session, n)
        log.seconds += 10
    assert bounds(log)[0] > 10


def test_a_topic_with_other_settings_exists_already(log: Log) -> None:
    log.topic("orders", retain_bytes=1000)
    with pytest.raises(TopicExistsError, match="keeps 1000 bytes, not 2000 bytes and 5 seconds"):
        log.propose(create_topic("orders", retain_bytes=2000, retain_seconds=5))
    plain = [create_topic("orders"), create_topic("orders", retain_bytes=0, retain_seconds=0)]
    for batch in [*plain, create_topic("orders", retain_bytes=1000)]:
        assert log.run(batch) == {"topic": log.describe()}


def test_of_two_creations_in_the_log_the_first_one_wins_and_the_other_is_refused(log: Log) -> None:
    log.propose(create_topic("orders", retain_seconds=60))
    log.propose(create_topic("orders", retain_seconds=61))
    log.apply()
    with pytest.raises(TopicExistsError):
        log.apply()
    assert log.describe()["retain_seconds"] == 60


@pytest.mark.parametrize(
    "settings",
    [
        {"retain_bytes": -1},
        {"retain_bytes": 1.0},
        {"retain_bytes": True},
        {"retain_bytes": 1 << 62},
        {"retain_seconds": -1},
        {"retain_seconds": float("nan")},
        {"retain_seconds": float("inf")},
        {"retain_seconds": "1"},
    ],
)
def test_settings_out_of_range_are_refused(log: Log, settings: dict[str, Any]) -> None:
    log.topic("orders")
    for batch in (create_topic("new", **settings), configure_topic("orders", **settings)):
        with pytest.raises(RequestError):
            log.propose(batch)


# The bound below which the log may be dropped.


def test_the_log_is_kept_from_the_oldest_records_of_any_topic(log: Log) -> None:
    assert log.machine.keep_from() is None
    assert log.machine.explain_kept() == ""
    old = fill(log, 2, name="old")
    new = fill(log, 2, name="new")
    log.topic("empty")
    assert log.machine.keep_from() == old[0].first_index
    explained = log.machine.explain_kept()
    assert "topic 'old' keeps 2 records" in explained
    assert "since 1970-01-01 00:00:00 UTC" in explained
    assert "at most 3: viewstamp topic trim old POSITION" in explained
    log.run(trim_topic("old", 3))
    assert log.machine.keep_from() == new[0].first_index
    assert "viewstamp topic trim new" in log.machine.explain_kept()


def test_trims_are_part_of_the_digest_and_of_the_chain(log: Log) -> None:
    fill(log, 5)
    other = restored(log.machine)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    assert isinstance(log.propose(trim_topic("orders", 3)), Accepted)
    log.apply()
    assert other.digest() != log.machine.digest()
    assert other.chain != log.machine.chain
    other.apply(log.applied[-1])
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
