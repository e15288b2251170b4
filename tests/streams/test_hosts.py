"""The hosts of a group in the state of group 0: which records change them, and that nobody who has left comes back."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.log import Log, command, pieces, restored
from tests.streams.test_placement import FIRST, NODES, SECOND, THIRD, established, groups, hosted, place, placed
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError
from viewstamp.ids import Index, NodeId, Position, Term
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.node.state_machine import Answered
from viewstamp.streams import Streams
from viewstamp.streams.placement import FOUNDERS_MAX, Placements
from viewstamp.wire.batch import Batch, Kind


def host(group: object, node: object, address: object = "a:4", **more: object) -> Batch:
    return command(Kind.HOST_GROUP, group=group, node=node, address=address, **more)


def unhost(group: object, node: object, **more: object) -> Batch:
    return command(Kind.UNHOST_GROUP, group=group, node=node, **more)


def left(group: object, node: object, **more: object) -> Batch:
    return command(Kind.LEFT_GROUP, group=group, node=node, **more)


def hosts(log: Log) -> tuple[list[str], list[str], list[str]]:
    """Return the hosts of the only group, those that are leaving, and those that have left."""
    (group,) = groups(log)
    return list(group.hosts), list(group.leaving), list(group.left)


@pytest.fixture
def log() -> Log:
    return Log(Streams())


def test_a_host_is_added_and_another_one_leaves(log: Log) -> None:
    group = established(log, "s1")
    before = groups(log)[0]
    log.run(host(group, "n4"))
    assert hosts(log) == (["n1", "n2", "n3", "n4"], [], [])
    log.run(unhost(group, "n3"))
    assert hosts(log) == (["n1", "n2", "n3", "n4"], ["n3"], []), "it stays a host until its group has removed it"
    log.run(left(group, "n3"))
    log.run(unhost(group, "n4"))
    log.run(left(group, "n4"))
    assert hosts(log) == (["n1", "n2"], [], ["n3", "n4"])
    after = groups(log)[0]
    assert (after.members, after.incarnations) == (before.members, before.incarnations), "the founders stay"
    assert after.is_established
    described = after.describe()
    assert {name: described[name] for name in ("hosts", "leaving", "left")} == {
        "hosts": {"n1": "a:1", "n2": "a:2"},
        "leaving": [],
        "left": ["n3", "n4"],
    }


def test_second_copies_change_nothing(log: Log) -> None:
    group = established(log, "s1")
    for record in (host(group, "n4"), unhost(group, "n4"), left(group, "n4")):
        log.run(Batch.decode(bytearray(record.buffer)))
        state = groups(log)
        admission = log.propose(Batch.decode(bytearray(record.buffer)))
        assert isinstance(admission, Answered)
        assert log.enter(record) == admission.result
        assert groups(log) == state
    assert isinstance(log.propose(unhost(group, "n4")), Answered), "it has left"
    assert isinstance(log.propose(host(group, "n1", "elsewhere:1")), Answered), "group 0 has the addresses"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (host(9, "n4"), "there is no group 9"),
        (host(4, "n3"), "n3 is leaving group 4, and a node is not added to a group again"),
        (host(4, "n2"), "n2 has left group 4, and a node is not added to a group again"),
        (host(4, "n4~8c21f0aa"), "which is the id of one of its disks"),
        (host(4, "n4", ""), "the founder 'n4' at ''"),
        (host(4, 7), "whose node is 7"),
        (host(4, "n4", None), "whose address is None"),
        (unhost(4, "n5"), "n5 does not host group 4: n1, n3; nothing was changed"),
        (unhost(4, "n1"), "group 4 would have no host without n1"),
        (unhost("4", "n1"), "whose group is '4'"),
        (left(4, "n1"), "n1 was reported as no member of group 4, and nobody has removed it"),
        (left(4, None), "whose node is None"),
    ],
)
def test_bad_records_are_refused_and_change_nothing(log: Log, record: Batch, message: str) -> None:
    for _ in range(3):
        log.topic()
    group = established(log, "s1")
    assert group == 4
    for each in (unhost(group, "n2"), left(group, "n2"), unhost(group, "n3")):
        log.run(each)
    before = groups(log)
    with pytest.raises(RequestError, match=message) as refused:
        log.propose(Batch.decode(bytearray(record.buffer)))
    assert refused.value.remedy
    with pytest.raises(RequestError, match=message):
        log.enter(Batch.decode(bytearray(record.buffer)))
    assert groups(log) == before


def test_the_hosts_of_a_group_that_is_not_established_cannot_change(log: Log) -> None:
    group = placed(log, "s1")
    for record in (host(group, "n4"), unhost(group, "n3"), left(group, "n3")):
        with pytest.raises(RequestError, match=f"group {group} is not established"):
            log.propose(record)


def test_a_group_has_a_limit_of_hosts_and_of_added_nodes(log: Log) -> None:
    group = established(log, "s1")
    for number in range(4, FOUNDERS_MAX + 1):
        log.run(host(group, f"n{number}"))
    with pytest.raises(RequestError, match="has 9 hosts, and 0 have left; it can have 9, and 64 in the course of time"):
        log.propose(host(group, "n10"))
    for number in range(4, 62):
        log.run(unhost(group, f"n{number}"))
        log.run(left(group, f"n{number}"))
        log.run(host(group, f"n{number + 6}"))
    with pytest.raises(RequestError, match="has 9 hosts, and 58 have left"):
        log.propose(host(group, "n99"))
    log.run(unhost(group, "n62"))
    log.run(left(group, "n62"))
    with pytest.raises(
        RequestError, match="has 8 hosts, and 59 have left; it can have 9, and 64 in the course of time"
    ):
        log.propose(host(group, "n99"))


def test_a_field_of_a_newer_release_stops_the_member(log: Log) -> None:
    group = established(log, "s1")
    for record in (host(group, "n4", weight=1), unhost(group, "n3", weight=1), left(group, "n3", weight=1)):
        with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
            log.propose(record)


def test_only_a_snapshot_of_changed_hosts_has_the_new_version(log: Log) -> None:
    def version() -> int:
        cut = log.machine.begin_snapshot()
        header = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        return int(header[1][0])

    group = established(log, "s1")
    assert version() == 5
    for record in (host(group, "n4"), unhost(group, "n3"), left(group, "n3"), unhost(group, "n4"), left(group, "n4")):
        log.run(record)
        assert version() == 25
        other = restored(log.machine)
        assert groups(Log(other)) == groups(log)
        assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)


DISKS = {"n1": FIRST, "n2": SECOND, "n3": THIRD}


@pytest.mark.parametrize(
    "row",
    [
        [],
        [{}, [], []],
        [{"n4": "a:4"}, []],
        [{"n4": "a:4"}, [], [], 1],
        [{"n1": "a:1"}, [], []],
        [{"n4": "a:4"}, [], ["n4"]],
        [{"n4": ""}, [], []],
        [{}, ["n4"], []],
        [{}, ["n1", "n1"], []],
        [{}, ["n1", "n2", "n3"], []],
        [{}, [], ["n1", "n2", "n3"]],
        [{}, [], ["n1", "n1"]],
        [{}, [], [7]],
        [7, [], []],
    ],
)
def test_an_image_that_breaks_an_invariant_is_damage(log: Log, row: list[object]) -> None:
    group = established(log, "s1")
    log.run(host(group, "n4"))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[7] == [[1, NODES, ["s1"], DISKS, {"n4": "a:4"}, [], []]]
    header[7] = [[1, NODES, ["s1"], DISKS, *row]]
    whole[0] = msgpack.packb(["state", header])
    if not row:
        Streams().prepare(whole)
        return
    with pytest.raises(CorruptionError):
        Streams().prepare(whole)


NAMES = st.sampled_from(["n1", "n2", "n3", "n4", "n5"])
RECORDS = st.one_of(
    st.builds(host, st.just(1), NAMES), st.builds(unhost, st.just(1), NAMES), st.builds(left, st.just(1), NAMES)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORDS, max_size=30))
def test_no_history_brings_a_node_back_or_leaves_a_group_without_hosts(history: list[Batch]) -> None:
    """And a leader refuses or answers in advance exactly where applying has no effect."""
    placements = Placements()
    begin = [place("s"), *(hosted(1, node, disk) for node, disk in DISKS.items())]
    gone: set[NodeId] = set()
    for index, record in enumerate([*begin, *history], 1):
        record = Batch.decode(bytearray(record.buffer))
        record.stamp(
            term=Term(1),
            first_index=Index(index),
            previous_term=Term(1),
            log_time=index,
            first_position=Position(0),
        )
        before = dict(placements.groups)
        try:
            settled: PlacedGroup | None = placements.find_settled(record)
        except RequestError:
            with pytest.raises(RequestError):
                placements.apply(record)
            assert placements.groups == before
            continue
        found = placements.apply(record)
        assert (settled is None) is (placements.groups != before)
        assert settled in (None, found)
        assert not gone & found.hosts.keys()
        gone |= set(found.left)
        assert not found.hosts or found.hosts.keys() > set(found.leaving)
        assert Placements.from_image(msgpack.unpackb(msgpack.packb(placements.image()))).groups == placements.groups
