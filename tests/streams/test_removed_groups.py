"""REMOVE_GROUP: only an empty established group ends, once, and nothing is placed in it afterwards."""

from __future__ import annotations

import pytest

from tests.streams.actors import CLASSES
from tests.streams.log import Log, command, pieces, restored
from tests.streams.test_placement import FIRST, cancel, established, groups, hosted, place, placed
from tests.streams.test_removed_streams import sealed, version
from tests.streams.test_spread import spread_over, topics
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import GroupId
from viewstamp.node.placement_queries import CancelledGroupsQuery, FreeGroupsQuery, PlacementQuery, RemovedGroupsQuery
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams, placement
from viewstamp.streams.placement import Placements
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.placing import encode_remove
from viewstamp.wire.sealing import encode_close, encode_gone, encode_sealed
from viewstamp.wire.spread_actors import encode_spread_actor
from viewstamp.wire.spreading import encode_add_stream


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def remove(group: int, *, seen: int = 1 << 40, is_lost: bool = False) -> Batch:
    return encode_remove(GroupId(group), seen=seen, is_lost=is_lost, by="ops")


def refused(log: Log, record: Batch, why: str) -> RequestError:
    """Check that a record is refused before it is proposed, and when it is applied, and changes nothing."""
    before = groups(log)
    with pytest.raises(RequestError, match=why) as refusal:
        log.propose(record)
    with pytest.raises(RequestError, match=why):
        log.enter(record)
    assert groups(log) == before
    return refusal.value


def removed_stream(log: Log) -> tuple[int, int]:
    """Remove stream 1 of "orders", which has the first group for itself; return this group and the other one."""
    old, new = established(log, "old"), established(log, "new")
    log.run(spread_over("orders", old))
    log.run(encode_add_stream("orders", 2, GroupId(new), is_named=True))
    log.run(encode_close("orders", 1, 2))
    log.run(encode_sealed("orders", 1, 1))
    log.run(encode_gone("orders", 1, 1))
    return old, new


def test_an_empty_group_is_removed_once_and_a_copy_finds_it(log: Log) -> None:
    group = established(log, "s1")
    assert log.run(remove(group))["group"]["id"] == group  # type: ignore[index]
    assert groups(log) == []
    assert log.machine.query(RemovedGroupsQuery()) == [group]
    assert log.machine.query(CancelledGroupsQuery()) == []
    for copy in (remove(group), cancel(group), remove(group, seen=0)):
        admission = log.propose(copy)
        assert isinstance(admission, Answered)
        log.enter(copy)
    assert log.machine.query(PlacementQuery(remove(group))) is not None
    assert log.machine.query(RemovedGroupsQuery()) == [group]


def test_a_group_that_is_not_established_is_cancelled_and_not_removed(log: Log) -> None:
    group = placed(log, "s1")
    log.run(hosted(group, "n1", FIRST))
    assert f"group cancel {group}" in refused(log, remove(group), "not established").remedy
    log.run(cancel(group))
    assert isinstance(log.propose(remove(group)), Answered)
    assert log.machine.query(RemovedGroupsQuery()) == []
    refused(log, remove(99), "there is no group 99")


def test_a_group_with_a_stream_that_is_not_removed_stays(log: Log) -> None:
    group = sealed(log)
    refusal = refused(log, remove(group), "has the streams 'orders.1', 'orders.2', 'orders.3'; it was not removed")
    assert "viewstamp stream remove" in refusal.remedy


def test_a_group_whose_last_stream_was_removed_after_the_look_stays(log: Log) -> None:
    old, new = removed_stream(log)
    gone = topics(log)[0].closed[0].gone
    refused(log, remove(old, seen=gone - 1), "was removed after this command had looked at the group")
    refused(log, remove(new), "has the stream 'orders.2'")
    log.run(remove(old, seen=gone))
    assert [each.id for each in groups(log)] == [new]


@pytest.mark.parametrize("field", ["seen", "is_lost"])
@pytest.mark.parametrize("value", ["1", None, 1.5])
def test_a_record_with_a_field_of_another_type_is_refused(log: Log, field: str, value: object) -> None:
    fields = {"group": established(log, "s1"), "seen": 0, "is_lost": False, field: value}
    refused(log, command(Kind.REMOVE_GROUP, **fields), f"whose {field} is")


def test_a_group_whose_nodes_are_lost_needs_no_look(log: Log) -> None:
    old, _ = removed_stream(log)
    log.run(remove(old, seen=0, is_lost=True))
    assert log.machine.query(RemovedGroupsQuery()) == [old]


def test_a_group_with_instances_of_an_actor_stays() -> None:
    log = Log(Streams(CLASSES))
    group = established(log, "s1")
    log.run(encode_spread_actor("counter", [GroupId(group)], are_named=True))
    assert "viewstamp reshard" in refused(log, remove(group), "has instances of the actor 'counter'").remedy


def test_nothing_is_placed_in_a_removed_group(log: Log) -> None:
    group = established(log, "s1")
    other = established(log, "new")
    log.run(spread_over("orders", other))
    late = (
        spread_over("late", group),
        encode_add_stream("orders", 2, GroupId(group), is_named=True),
        encode_spread_actor("counter", [GroupId(group)], are_named=True),
        hosted(group, "n1", FIRST),
    )
    log.run(remove(group))
    for record in late:
        with pytest.raises(RequestError):
            log.enter(record)
    assert log.machine.query(FreeGroupsQuery(2)) == [other, other]
    assert len(topics(log)[0].groups) == 1


def test_a_late_copy_of_the_placement_places_no_other_group(log: Log) -> None:
    group = established(log, "s1")
    removal = log.next_index
    log.run(remove(group))
    refused(log, place("s1", since=removal - 1), f"group {group} was removed after this request was made")
    assert log.run(place("s1", since=removal))["group"]["id"] > group  # type: ignore[index]


def test_the_names_of_removed_streams_are_not_used_again(log: Log) -> None:
    old, _ = removed_stream(log)
    log.run(remove(old))
    refused(log, place("orders.1"), "the name 'orders.1' is that of a stream that was removed")


def test_a_snapshot_keeps_what_was_removed_and_an_older_release_refuses_it(log: Log) -> None:
    old, new = removed_stream(log)
    cancelled = placed(log, "never")
    log.run(cancel(cancelled))
    assert version(log) == 21, "as before"
    log.run(remove(old))
    assert version(log) == 24
    again = restored(log.machine)
    assert again.query(RemovedGroupsQuery()) == [old]
    assert again.query(CancelledGroupsQuery()) == [cancelled]
    assert again.query(FreeGroupsQuery(1)) == [new]
    assert list(pieces(again.begin_snapshot())) == list(pieces(log.machine.begin_snapshot()))


@pytest.mark.parametrize("more", [[False], [True, True], [1], ["x"]])
def test_a_removed_group_of_an_image_that_is_malformed_is_refused(more: list[object]) -> None:
    with pytest.raises(ValueError, match="was cancelled or removed"):
        Placements.from_image([["cancelled", [[3, 9, *more]]]])


def test_a_loaded_topic_has_only_removed_streams_in_groups_that_are_not_placed(log: Log) -> None:
    sealed(log)
    log.machine._state.placements.groups.clear()
    with pytest.raises(CorruptionError, match="was never placed"):
        restored(log.machine)


def test_the_group_that_was_removed_first_is_forgotten_with_its_mark(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "CANCELLED_MAX", 1)
    first, other = established(log, "s1"), established(log, "new")
    log.run(remove(first))
    log.run(remove(other))
    assert log.machine.query(RemovedGroupsQuery()) == [other]
    assert log.machine._state.placements.removed == {other}


def test_a_record_with_a_field_of_a_later_release_stops_the_member(log: Log) -> None:
    group = established(log, "s1")
    for record in (
        command(Kind.REMOVE_GROUP, group=group, seen=0, is_lost=False, x=1),
        command(Kind.REMOVE_GROUP, group=group, x=1),
    ):
        with pytest.raises(OutdatedCodeError):
            log.propose(record)
        with pytest.raises(OutdatedCodeError):
            log.enter(record)
