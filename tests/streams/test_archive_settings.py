"""The archive settings of topics: what their records change, which run is due, and what the log and the store keep."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.log import Log, command, configure_topic, create_topic, pieces, restored, trim_topic
from tests.streams.test_runs import commit, drop, forget, prepare
from viewstamp.errors import OutdatedCodeError, RequestError, TopicExistsError, TrimmedError, UnknownTopicError
from viewstamp.ids import Position, RunId, TopicId
from viewstamp.node.archive_queries import DueRun, DueRunsQuery, UnneededRunsQuery
from viewstamp.node.state_machine import Accepted, LocationQuery
from viewstamp.streams import Streams
from viewstamp.streams.archive_plan import due_run
from viewstamp.streams.runs import RUNS_MAX
from viewstamp.wire.archive_requests import ARCHIVE_DELAY, ConfigureArchive
from viewstamp.wire.batch import Batch, Kind

HOUR, DAY = 3600, 86_400
US = 1_000_000


def configure(name: object = "orders", **fields: object) -> Batch:
    return command(Kind.CONFIGURE_ARCHIVE, name=name, **fields)


class Archived(Log):
    """A log with the topic "orders", whose archive is on; ``fill`` appends records at the log's time."""

    def __init__(self, **fields: object) -> None:
        super().__init__(Streams())
        self.own = self.session()
        self.sequence = 0
        self.id = self.topic()
        self.run(configure(is_on=True, **fields))

    def fill(self, count: int = 10, *, at: float | None = None, size: int = 8, topic: int = 0) -> None:
        """Append ``count`` records in one batch, at ``at`` seconds of log time."""
        self.seconds = self.seconds if at is None else at  # type: ignore[assignment]
        self.sequence += 1
        self.append(topic or self.id, self.own, self.sequence, count, size)

    def archive(self, first: int, end: int, *, delay: int = 0, times: tuple[int, int] = (0, 0), topic: int = 1) -> int:
        """Write a run of records with these log times in seconds, and return its id."""
        made = self.run(prepare(first, end, topic))
        assert isinstance(made, dict)
        run = int(made["run"]["id"])
        first_time, last_time = (each * US for each in times)
        content = {"first_time": first_time, "last_time": last_time, "end_index": self.next_index - 1}
        self.run(commit(run, end - first, delay=delay * US, **content))
        return run

    def due(self, now: float, *, is_pressed: bool = False, run_bytes: int = 1 << 28) -> list[DueRun]:
        return self.machine.query(DueRunsQuery(round(now * US), is_pressed, run_bytes, HOUR * US))

    @property
    def first(self) -> int:
        return int(self.describe()["first_position"])

    @property
    def needed(self) -> int | None:
        """The first position that the log must keep; None = none."""
        state = self.machine._state
        index = state.needed_from(state.names["orders"])
        entries = state.names["orders"].entries()
        return None if index is None else max(position for position, at in entries if at <= index)


# The record.


def test_settings_are_changed_field_by_field_and_are_gone_with_the_archive() -> None:
    log = Archived()
    assert log.describe()["archive"] == {
        "is_on": True,
        "after_seconds": 0.0,
        "delay_seconds": ARCHIVE_DELAY,
        "delete_seconds": 0.0,
    }
    log.run(configure(after_seconds=DAY, delete_seconds=90 * DAY))
    log.run(configure(delay_seconds=0, retain_bytes=7))
    described = log.describe()
    assert described["archive"] == {
        "is_on": True,
        "after_seconds": DAY,
        "delay_seconds": 0,
        "delete_seconds": 90 * DAY,
    }
    assert described["retain_bytes"] == 7
    log.run(configure(is_on=False))
    assert "archive" not in log.describe()
    log.run(configure(is_on=True))
    assert log.describe()["archive"]["delete_seconds"] == 0.0, "a later archive does not delete by an old age"


@pytest.mark.parametrize("field", ConfigureArchive.fields, ids=lambda field: field.name)
def test_a_value_of_a_wrong_type_is_refused_in_the_log_too(field: Any) -> None:
    log = Archived()
    before = log.describe()
    for value in (b"x", [1], {}, "later", *([None] if field.name in ("name", "is_new") else [])):
        if type(value) in field.types and field.name != "name":
            continue
        with pytest.raises((RequestError, UnknownTopicError)):
            log.enter(configure(**{"name": "orders", field.name: value}))
    assert log.describe() == before


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"delete_seconds": -1}, "cannot have delete_seconds -1"),
        ({"after_seconds": float("nan")}, "cannot have after_seconds nan"),
        ({"delay_seconds": 1e12}, "cannot have delay_seconds"),
        ({"after_seconds": DAY, "delete_seconds": DAY}, "cannot be deleted after 86400 s, because they are archived"),
        ({"is_on": False, "delete_seconds": DAY}, "would have no archive, so it cannot have delete_seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_the_leader_and_by_each_member(
    fields: dict[str, object], why: str
) -> None:
    log = Archived()
    before = log.describe()
    with pytest.raises(RequestError, match=why):
        log.propose(configure(**fields))
    with pytest.raises(RequestError, match=why):
        log.enter(configure(**fields))
    assert log.describe() == before


def test_a_member_stops_at_a_field_of_a_newer_release() -> None:
    with pytest.raises(OutdatedCodeError, match="'pace'"):
        Archived().enter(configure(pace=1))


def test_a_field_of_the_archive_in_a_record_of_an_older_leader_changes_nothing() -> None:
    """A leader of an older release writes fields that it does not know, and its members ignore them."""
    log = Archived()
    before = log.describe()
    log.run(configure_topic("orders", is_on=False, delete_seconds=1, archive=False))
    assert log.describe() == before


def test_a_topic_is_created_with_its_archive_once() -> None:
    log = Archived()
    record = {"is_new": True, "is_on": True, "delete_seconds": DAY}
    created = log.run(configure("trades", **record))
    assert isinstance(created, dict)
    assert created["topic"]["archive"]["delete_seconds"] == DAY
    assert log.run(configure("trades", **record)) == created, "a second copy finds it"
    with pytest.raises(TopicExistsError, match="other archive settings"):
        log.propose(configure("trades", is_new=True, is_on=True))
    with pytest.raises(TopicExistsError, match="keeps everything"):
        log.propose(configure("trades", retain_bytes=5, **record))
    with pytest.raises(RequestError, match="topic"):
        log.propose(configure("no/name", is_new=True, is_on=True))
    with pytest.raises(UnknownTopicError):
        log.propose(configure("unknown", is_on=True))


def test_a_snapshot_has_the_settings_and_one_without_them_is_as_before() -> None:
    log = Archived(after_seconds=DAY, delete_seconds=2 * DAY)
    log.fill(at=5)
    whole = list(pieces(log.machine.begin_snapshot()))
    log.machine._cut = None
    assert msgpack.unpackb(whole[0])[1][0] == 9
    other = restored(log.machine)
    assert other.digest() == log.machine.digest()
    assert other._state.describe(other._state.names["orders"]) == log.describe()
    log.run(configure(is_on=False))
    assert msgpack.unpackb(next(pieces(log.machine.begin_snapshot())))[1][0] < 9


# Which run is due.


def test_a_run_is_due_an_hour_after_its_first_record_is_old_enough() -> None:
    log = Archived(after_seconds=DAY)
    log.fill(at=1000)
    assert log.due(1000 + DAY) == []
    assert log.due(1000 + DAY + HOUR - 1) == []
    assert log.due(1001 + DAY + HOUR) == [DueRun("orders", Position(11), DAY * US, is_urgent=False)]
    log.archive(1, 11)
    assert log.due(1e9) == [], "all is archived"


def test_records_younger_than_the_archive_age_wait() -> None:
    log = Archived(after_seconds=DAY)
    log.fill(at=1000)
    log.fill(at=2 * DAY)
    log.fill(at=2 * DAY + 2 * HOUR)
    assert log.due(2 * DAY + HOUR) == [], "the age of a record is known when the next one is old enough"
    assert [due.end for due in log.due(3 * DAY + HOUR)] == [11]


def test_a_run_is_due_at_its_size_before_the_hour_is_over() -> None:
    log = Archived()
    for _ in range(10):
        log.fill(size=20_000)
    assert log.due(1, run_bytes=3_000_000) == []
    assert [due.end for due in log.due(1, run_bytes=1_900_000)] == [101]


def test_a_log_that_is_nearly_full_does_not_wait_for_the_archive_age() -> None:
    log = Archived(after_seconds=DAY)
    log.fill(at=1000, size=1000)
    assert log.due(1001, run_bytes=5000) == []
    assert log.due(1001, is_pressed=True, run_bytes=5000) == [DueRun("orders", Position(11), DAY * US, is_urgent=True)]
    assert log.due(1001, is_pressed=True, run_bytes=50_000) == [], "not for a few records at a time"


def test_topics_are_archived_from_the_end_of_the_last_run_on_and_only_with_the_setting() -> None:
    log = Archived()
    other = log.topic("trades")
    log.fill(topic=other)
    log.fill(at=1000)
    log.archive(1, 11)
    log.fill(at=1000 + 2 * HOUR)
    assert [due.topic for due in log.due(1000 + 4 * HOUR)] == ["orders"]
    log.run(configure(is_on=False))
    assert log.due(1e9) == []


def test_runs_are_rarer_when_the_catalogue_is_half_full() -> None:
    log = Archived()
    log.fill(at=1000)
    state = log.machine._state
    runs = state.runs
    query = DueRunsQuery((1000 + 2 * HOUR) * US, is_pressed=False, run_bytes=1 << 28, wait=HOUR * US)
    assert due_run(state.names["orders"], runs, state.maps, query) is not None
    runs.runs = dict.fromkeys(range(RUNS_MAX // 2))  # type: ignore[arg-type]
    assert due_run(state.names["orders"], runs, state.maps, query) is None


# What the log keeps, and what the store keeps.


def test_with_the_archive_the_retention_deletes_nothing_and_says_what_the_log_keeps() -> None:
    log = Archived(retain_seconds=100, delay_seconds=0)
    log.fill(at=1000)
    log.fill(at=2000, size=80_000)
    log.fill(at=3000)
    log.run(configure(retain_bytes=1))
    assert log.first == 1
    log.run(configure(retain_bytes=0))
    log.archive(1, 11, times=(1000, 1000))
    log.fill(at=3001)
    assert log.needed == 11, "the first run is older than the retention, and its delay is over"
    log.archive(11, 41, times=(2000, 3001))
    log.fill(at=3110)
    assert log.needed == 21, "the rest of the second run is younger than the retention"
    log.run(configure(retain_seconds=0))
    assert log.needed == 41
    assert log.first == 1


def test_without_the_archive_the_retention_deletes_as_before() -> None:
    log = Archived()
    log.run(configure(is_on=False, retain_seconds=100))
    log.fill(at=1000)
    log.fill(at=2000)
    assert log.first == 11


def test_the_delete_age_deletes_whole_runs_whose_records_are_all_older() -> None:
    log = Archived(delete_seconds=DAY, delay_seconds=0)
    log.fill(at=1000)
    log.fill(at=3000)
    first, second = log.archive(1, 11, times=(1000, 1000)), log.archive(11, 21, times=(3000, 3000))
    assert log.machine.query(UnneededRunsQuery()) == []
    log.fill(at=999 + DAY)
    assert log.first == 1
    log.fill(at=1001 + DAY)
    assert log.first == 11
    with pytest.raises(TrimmedError):
        log.machine.query(LocationQuery(TopicId(1), Position(1)))
    assert log.machine.query(UnneededRunsQuery()) == ["orders"]
    log.run(drop(first))
    assert log.machine.query(UnneededRunsQuery()) == ["orders"], "its file is to be removed"
    log.run(forget(first))
    assert log.machine.query(UnneededRunsQuery()) == []
    log.fill(at=10 * DAY)
    assert log.first == 21
    assert log.machine.query(UnneededRunsQuery()) == ["orders"]
    assert second in log.machine._state.runs.runs


def test_records_in_no_run_are_never_deleted_because_of_their_age() -> None:
    log = Archived(delete_seconds=DAY, retain_bytes=1, retain_seconds=1)
    log.fill(at=1000)
    log.archive(1, 6, times=(1000, 1000))
    log.fill(at=100 * DAY)
    assert log.first == 6, "the rest waits for its run, however old it is"


def test_a_trim_and_a_smaller_delete_age_take_effect_at_once() -> None:
    log = Archived(delay_seconds=0)
    log.fill(at=1000)
    log.archive(1, 11, times=(1000, 1000))
    log.fill(at=1000 + DAY)
    log.run(configure(delete_seconds=HOUR))
    assert log.first == 11
    log.run(trim_topic("orders", 15))
    assert log.first == 15


def test_the_archive_is_not_turned_off_while_retention_would_delete_archived_records() -> None:
    log = Archived(retain_seconds=100, delay_seconds=0)
    log.fill(at=1000)
    log.run(configure(is_on=False))
    log.run(configure(is_on=True))
    log.archive(1, 11)
    with pytest.raises(RequestError, match="would delete archived records"):
        log.propose(configure(is_on=False))
    with pytest.raises(RequestError, match="would delete archived records"):
        log.enter(configure(is_on=False))
    log.run(configure(is_on=False, retain_seconds=0))
    log.fill(at=1000 * DAY)
    assert log.first == 1


def test_an_idle_leader_advances_log_time_when_an_age_or_a_delay_ends() -> None:
    """Otherwise a full log could never delete its copy, because it accepts nothing else."""
    log = Archived(delete_seconds=DAY, delay_seconds=HOUR)
    log.fill(at=1000)
    log.archive(1, 11, delay=HOUR, times=(1000, 1000))
    log.session()

    def upkeep(now: int) -> Batch | None:
        return log.machine.upkeep(log.seconds * US + 2000, now * US)

    assert upkeep(1000 + HOUR - 2) is None
    for end in (1000 + HOUR + 1, 1000 + DAY + 1):
        batch = upkeep(end)
        assert batch is not None
        log.seconds = end
        assert isinstance(log.propose(batch), Accepted)
        log.apply()
        assert upkeep(end + 5) is None, "once"
    assert log.first == 11


def test_a_fork_has_the_settings_and_deletes_runs_of_the_old_cluster_from_its_topics_only() -> None:
    log = Archived(delete_seconds=DAY, delay_seconds=0)
    log.fill(at=1000)
    run = log.archive(1, 11, times=(1000, 1000))
    log.enter(command(Kind.FORK, **{"from": "c9", "end": log.next_index}))
    assert log.describe()["archive"]["delete_seconds"] == DAY
    log.seconds = 1001 + DAY
    log.own, log.sequence = log.session(), 0
    log.fill()
    assert log.first == 11
    known = log.machine._state.runs.runs[RunId(run)]
    assert known.origin == "c9", "so the archivist forgets it and leaves its object alone"


def test_a_topic_describes_its_archived_part() -> None:
    log = Archived()
    assert log.describe()["archived"] == {
        "first": 1,
        "end": 1,
        "runs": 0,
        "bytes": 0,
        "first_time": 0,
        "last_time": 0,
        "waiting_since": 0,
        "waiting_bytes": 0,
        "wait_factor": 1,
    }
    log.fill(at=1000)
    log.archive(1, 6, times=(1000, 1001))
    part = log.describe()["archived"]
    assert {name: part[name] for name in ("first", "end", "runs", "bytes", "first_time", "last_time")} == {
        "first": 1,
        "end": 6,
        "runs": 1,
        "bytes": 7,
        "first_time": 1000 * US,
        "last_time": 1001 * US,
    }
    assert 1000 * US <= part["waiting_since"] < 1001 * US
    plain = Log(Streams())
    plain.run(create_topic("a"))
    assert "archived" not in plain.describe("a")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fill"), st.integers(0, 2000)),
            st.tuples(st.just("run"), st.integers(1, 15)),
            st.tuples(st.just("set"), st.sampled_from([0, 10, 1000])),
            st.tuples(st.just("retain"), st.sampled_from([0, 1, 500])),
        ),
        max_size=25,
    )
)
def test_no_history_deletes_a_record_that_is_in_no_run_or_needs_one_that_the_log_lacks(
    steps: list[tuple[str, int]],
) -> None:
    log = Archived(delay_seconds=0)
    log.fill(1)
    archived_end = 1
    for step, value in steps:
        if step == "fill":
            log.fill(5, at=log.seconds + value)
        elif step == "set":
            log.run(configure(delete_seconds=value))
        elif step == "retain":
            log.run(configure(retain_seconds=value))
        else:
            first = max(archived_end, log.first)
            end = min(first + value, int(log.describe()["last_position"]) + 1)
            if first < end:
                unneeded = [run for run in log.machine._state.runs.committed(TopicId(1)) if run.end <= log.first]
                for run in unneeded:
                    log.run(drop(run.id))
                log.archive(first, end, times=(log.seconds, log.seconds))
                archived_end = end
        assert log.first <= archived_end
        assert log.needed is None or log.needed <= archived_end
        copy = restored(log.machine)
        assert copy.digest() == log.machine.digest()
