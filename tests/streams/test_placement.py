"""The placement of groups: which records have an effect, and that the disk of a founder is recorded only once."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutants.mutants import patched
from tests.streams.log import Log, command, pieces, restored
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import GroupId, Index, NodeId, Position, Term
from viewstamp.node.placement_queries import CancelledGroupsQuery, GroupsQuery, PlacedGroup
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams, placement
from viewstamp.streams.placement import FOUNDERS_MAX, GROUPS_MAX, STREAMS_MAX, Placements
from viewstamp.wire.batch import Batch, Kind, build_batch

NODES = {"n1": "a:1", "n2": "a:2", "n3": "a:3"}
FIRST, SECOND, THIRD = "0" * 15 + "1", "0" * 15 + "2", "0" * 15 + "3"


def place(*streams: object, members: object = NODES, **more: object) -> Batch:
    return command(Kind.PLACE_GROUP, members=members, streams=list(streams), **more)


def hosted(group: object, node: object, incarnation: object, **more: object) -> Batch:
    return command(Kind.HOSTED, group=group, node=node, incarnation=incarnation, **more)


def cancel(group: object, **more: object) -> Batch:
    return command(Kind.CANCEL_GROUP, group=group, **more)


def groups(log: Log) -> list[PlacedGroup]:
    return log.machine.query(GroupsQuery())


def placed(log: Log, *streams: str) -> int:
    """Place a group, and return its id."""
    result = log.run(place(*streams))
    assert isinstance(result, dict)
    group = result["group"]
    assert isinstance(group, dict)
    return int(group["id"])


def established(log: Log, *streams: str) -> int:
    group = placed(log, *streams)
    for node, incarnation in zip(NODES, (FIRST, SECOND, THIRD), strict=True):
        log.run(hosted(group, node, incarnation))
    return group


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def test_the_id_of_a_group_is_the_index_of_the_record_that_placed_it(log: Log) -> None:
    log.topic()
    assert log.run(place("s1", "s2")) == {
        "group": {"id": 2, "members": NODES, "streams": ["s1", "s2"], "hosted": [], "is_established": False}
    }
    assert groups(log) == [PlacedGroup(GroupId(2), {NodeId(n): a for n, a in NODES.items()}, ("s1", "s2"), {})]


def test_a_second_copy_of_a_placement_finds_the_group(log: Log) -> None:
    group = placed(log, "s1")
    admission = log.propose(place("s1"))
    assert isinstance(admission, Answered)
    assert isinstance(admission.result, dict)
    found = admission.result["group"]
    assert isinstance(found, dict)
    assert found["id"] == group
    assert log.enter(place("s1")) == {"group": found}
    assert [each.id for each in groups(log)] == [group]


def test_a_group_is_established_when_all_founders_have_a_disk_on_record(log: Log) -> None:
    group = placed(log, "s1")
    for node, incarnation, is_last in (("n2", SECOND, False), ("n1", FIRST, False), ("n3", THIRD, True)):
        log.run(hosted(group, node, incarnation))
        assert groups(log)[0].is_established is is_last
    assert groups(log)[0].incarnations == {"n1": FIRST, "n2": SECOND, "n3": THIRD}


def test_the_same_report_again_changes_nothing(log: Log) -> None:
    group = placed(log, "s1")
    log.run(hosted(group, "n1", FIRST))
    before = groups(log)
    assert isinstance(log.propose(hosted(group, "n1", FIRST)), Answered)
    log.enter(hosted(group, "n1", FIRST))
    assert groups(log) == before


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_second_disk_of_a_founder_is_refused_before_and_after_the_group_is_established(
    log: Log, is_whole: bool
) -> None:
    group = established(log, "s1") if is_whole else placed(log, "s1")
    if not is_whole:
        log.run(hosted(group, "n1", FIRST))
    before = groups(log)
    wiped = hosted(group, "n1", "f" * 16)
    with pytest.raises(RequestError, match="another disk of n1 on record") as refused:
        log.propose(wiped)
    assert "put the directory groups/1 of n1 back" in refused.value.remedy
    assert FIRST not in str(refused.value)
    with pytest.raises(RequestError, match="another disk of n1 on record"):
        log.enter(wiped)
    assert groups(log) == before


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (hosted(9, "n1", FIRST), "there is no group 9: it was cancelled or removed, or never placed"),
        (hosted(1, "n4", FIRST), "n4 is no founder of group 1: n1, n2, n3"),
        (hosted(1, "n2", FIRST), "n2 reports the disk of n1"),
        (hosted(1, "n2", "F" * 16), "not 16 hexadecimal digits"),
        (hosted(1, "n2", ""), "not 16 hexadecimal digits"),
        (hosted("1", "n2", SECOND), "whose group is '1'"),
        (hosted(-1, "n2", SECOND), "whose group is -1"),
        (hosted(1, None, SECOND), "whose node is None"),
        (hosted(1, "n2", None), "whose incarnation is None"),
        (build_batch([b"\xc1"], kind=Kind.HOSTED), "not valid MessagePack"),
        (build_batch([msgpack.packb([1])], kind=Kind.HOSTED), "no map"),
        (place("s2", "s2"), "the name 's2' is given twice"),
        (place("s2", "s1"), "the name 's1' belongs to group 1, which has the founders n1, n2, n3"),
        (place("s1", members={"n1": "a:1"}), "the name 's1' belongs to group 1"),
        (place(), "cannot have 0 names"),
        (place(*map(str, range(STREAMS_MAX + 1))), "cannot have 65 names"),
        (place("-"), "a group cannot be named '-'"),
        (place(7), "a group cannot be named 7"),
        (place("s\n"), "a group cannot be named"),
        (place("s2", members={}), "cannot have 0 founders"),
        (place("s2", members={f"n{n}": "a:1" for n in range(FOUNDERS_MAX + 1)}), "cannot have 10 founders"),
        (place("s2", members={"n1~8c21f0aa": "a:1"}), "the id of one of its disks"),
        (place("s2", members={"n1": ""}), "cannot have the founder 'n1' at ''"),
        (place("s2", members={"n1": 7}), "cannot have the founder 'n1' at 7"),
        (place("s2", members={"n\n": "a:1"}), "cannot have the founder"),
        (place("s2", members=["n1"]), "whose members is"),
        (cancel(9), "there is no group 9"),
        (cancel(None), "whose group is None"),
    ],
)
def test_bad_records_are_refused_with_their_values_and_change_nothing(log: Log, report: Batch, message: str) -> None:
    group = placed(log, "s1")
    log.run(hosted(group, "n1", FIRST))
    before, bytes_before = groups(log), bytes(report.buffer)
    with pytest.raises(RequestError, match=message) as refused:
        log.propose(report)
    assert refused.value.remedy or "no map" in message or "MessagePack" in message
    with pytest.raises(RequestError, match=message):
        log.enter(Batch.decode(bytearray(bytes_before)))
    assert groups(log) == before


def test_a_field_of_a_newer_release_stops_the_member(log: Log) -> None:
    group = placed(log, "s1")
    for record in (place("s2", weight=1), hosted(group, "n1", FIRST, weight=1), cancel(group, weight=1)):
        copy = Batch.decode(bytearray(record.buffer))
        with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
            log.propose(record)
        with pytest.raises(OutdatedCodeError, match="weight"):
            log.enter(copy)


def test_a_placement_can_be_cancelled_until_it_is_established(log: Log) -> None:
    group = placed(log, "s1")
    log.run(hosted(group, "n1", FIRST))
    log.run(cancel(group))
    assert groups(log) == []
    with pytest.raises(RequestError, match=f"there is no group {group}"):
        log.enter(hosted(group, "n2", SECOND))
    again = established(log, "s1")
    assert again > group
    with pytest.raises(RequestError, match=f"group {again} is established"):
        log.propose(cancel(again))
    with pytest.raises(RequestError, match=f"group {again} is established"):
        log.enter(cancel(again))
    assert [each.id for each in groups(log)] == [again]


def test_a_second_copy_of_a_cancellation_changes_nothing(log: Log) -> None:
    group = placed(log, "s1")
    log.run(cancel(group))
    chain = log.machine.chain
    admission = log.propose(cancel(group))
    assert isinstance(admission, Answered)
    again = log.enter(cancel(group))
    assert again == admission.result == {"group": PlacedGroup(GroupId(group), {}, (), {}).describe()}
    assert not PlacedGroup(GroupId(group), {}, (), {}).is_established
    assert log.machine.query(CancelledGroupsQuery()) == [group]
    assert log.machine.chain != chain, "it is in the log"


def test_a_late_copy_of_a_placement_does_not_place_a_cancelled_group_again(log: Log) -> None:
    group = placed(log, "s1")
    log.run(cancel(group))
    late = place("s1", since=0)
    with pytest.raises(RequestError, match=f"group {group} was cancelled after this request was made"):
        log.propose(Batch.decode(bytearray(late.buffer)))
    with pytest.raises(RequestError, match="may be a late copy"):
        log.enter(late)
    assert groups(log) == []
    log.run(place("s1", since=2))
    assert [each.streams for each in groups(log)] == [("s1",)]
    assert isinstance(log.propose(place("s1", since=0)), Answered)
    assert len(groups(log)) == 1, "the group that exists is found, whenever the request was made"


def test_only_the_newest_cancelled_groups_are_kept(log: Log) -> None:
    ids = [placed(log, f"s{number}") for number in range(3)]
    with patched(placement, CANCELLED_MAX=2):
        for group in ids:
            log.run(cancel(group))
        assert log.machine.query(CancelledGroupsQuery()) == ids[1:]
    assert restored(log.machine).query(CancelledGroupsQuery()) == ids[1:]


def test_there_is_a_limit_of_groups(log: Log) -> None:
    for number in range(GROUPS_MAX):
        placed(log, f"s{number}")
    with pytest.raises(RequestError, match=f"there are {GROUPS_MAX} groups"):
        log.propose(place("more"))
    assert isinstance(log.propose(place("s7")), Answered)


def test_a_snapshot_has_the_groups_and_older_releases_can_read_one_without_any(log: Log) -> None:
    def version() -> int:
        cut = log.machine.begin_snapshot()
        header = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        return int(header[1][0])

    assert version() == 3
    group = placed(log, "s1")
    log.run(hosted(group, "n1", FIRST))
    assert version() == 5
    other = restored(log.machine)
    assert other.query(GroupsQuery()) == groups(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    log.run(cancel(group))
    assert version() == 5
    other = restored(log.machine)
    assert other.query(CancelledGroupsQuery()) == [group]
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)


def test_a_fork_leaves_the_groups_to_the_old_cluster(log: Log) -> None:
    established(log, "s1")
    log.enter(command(Kind.FORK, **{"from": "c0", "end": 7}))
    assert groups(log) == []
    assert placed(log, "s1") > 0


@pytest.mark.parametrize(
    "image",
    [
        7,
        [7],
        [[1, NODES, ["s"]]],
        [["1", NODES, ["s"], {}]],
        [[0, NODES, ["s"], {}]],
        [[1, NODES, ["s"], {}], [1, NODES, ["t"], {}]],
        [[1, NODES, ["s"], {}], [2, NODES, ["s"], {}]],
        [[1, NODES, ["s", "s"], {}]],
        [[1, {}, ["s"], {}]],
        [[1, NODES, ["s"], {"n4": FIRST}]],
        [[1, NODES, ["s"], {"n1": FIRST, "n2": FIRST}]],
        [[1, NODES, ["s"], {"n1": "f"}]],
        [[1, NODES, ["s"], {"n1": 7}]],
        [["cancelled"]],
        [["cancelled", []]],
        [["cancelled", [[0, 2]]]],
        [["cancelled", [[2, 2]]]],
        [["cancelled", [[1, "2"]]]],
        [["cancelled", [[1, 3], [2, 3]]]],
        [["cancelled", [[1, 3], [1, 4]]]],
        [["cancelled", [[1, 3]]], [1, NODES, ["s"], {}]],
    ],
)
def test_an_image_that_breaks_an_invariant_is_damage(log: Log, image: object) -> None:
    placed(log, "s1")
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[7] == [[1, NODES, ["s1"], {}]]
    header[7] = image
    whole[0] = msgpack.packb(["state", header])
    with pytest.raises(CorruptionError):
        Streams().prepare(whole)


# Histories.

NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
RECORDS = st.one_of(
    st.builds(
        place,
        st.sampled_from(["s", "t", "u"]),
        st.sampled_from(["v", "w"]),
        since=st.integers(0, 30),
        members=st.sampled_from([{"n1": "a:1"}, {"n1": "a:1", "n2": "a:2"}, NODES]),
    ),
    st.builds(hosted, st.integers(1, 12), NAMES, st.sampled_from([FIRST, SECOND, THIRD])),
    st.builds(hosted, st.integers(1, 12), NAMES, st.sampled_from([FIRST, SECOND, THIRD])),
    st.builds(cancel, st.integers(1, 12)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=30))
def test_no_history_of_records_replaces_a_disk_or_moves_a_stream(history: list[Batch]) -> None:
    """``EstablishedIsNeverNew``; and a leader refuses or answers in advance exactly where applying has no effect."""
    placements = Placements()
    disks: dict[tuple[int, str], str] = {}
    ids: set[int] = set()
    for index, record in enumerate(history, 1):
        record = Batch.decode(bytearray(record.buffer))
        record.stamp(
            term=Term(1),
            first_index=Index(index),
            previous_term=Term(1),
            log_time=index,
            first_position=Position(0),
        )
        before, cancelled = dict(placements.groups), dict(placements.cancelled)
        ahead = outcome(placements.find_settled, record)
        result = outcome(placements.apply, record)
        if isinstance(ahead, str):
            assert result == ahead
        if ahead is not None:
            assert (placements.groups, placements.cancelled) == (before, cancelled)
        else:
            assert placements.groups != before
        for group in before.values():
            if group.is_established:
                assert placements.groups[group.id] == group
        for group in placements.groups.values():
            assert group.id in before or (group.id not in ids and group.id == index)
            ids.add(group.id)
            assert len(set(group.incarnations.values())) == len(group.incarnations)
            for node, incarnation in group.incarnations.items():
                assert disks.setdefault((group.id, node), incarnation) == incarnation
        streams = [stream for group in placements.groups.values() for stream in group.streams]
        assert len(set(streams)) == len(streams)
        copy = Placements.from_image(msgpack.unpackb(msgpack.packb(placements.image())))
        assert (copy.groups, copy.cancelled) == (placements.groups, placements.cancelled)
        assert not copy.groups.keys() & copy.cancelled.keys()
        placements = copy if index % 2 else placements


def outcome(call: Callable[[Batch], object], record: Batch) -> object:
    """Return the result of a call, or the text of its refusal."""
    try:
        return call(record)
    except RequestError as error:
        return str(error)
