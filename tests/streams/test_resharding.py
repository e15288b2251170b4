"""Instances that change their group: any division of any history keeps each state, once, with its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.actors import CLASSES, Counter, Journal, arguments, call, commands, decoded
from tests.streams.log import Log, command, pieces, restored
from tests.streams.test_placement import established
from tests.streams.test_tokens import READER, create
from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.errors import (
    CorruptionError,
    OutdatedCodeError,
    RequestError,
    UnavailableError,
    UnknownActorError,
)
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.actor_owners import SpreadActorsQuery
from viewstamp.node.state_machine import ActorChangesQuery, ActorQuery, AuditQuery, CommandResults
from viewstamp.streams import Streams, resharding
from viewstamp.streams.resharding import HeldInstances, arrivals, check_owners, reshards, version_of
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import decode_result
from viewstamp.wire.resharding import PackedInstance, decode_instances, encode_instances, encode_reshard
from viewstamp.wire.spread_actors import SpreadActor, encode_spread_actor
from viewstamp.wire.spreading import SLOTS

GROUPS = {1: [10], 3: [10, 20, 30], 8: [10, 20, 30, 40, 50, 60, 70, 80]}


def over(groups: Sequence[int], name: str = "counter") -> SpreadActor:
    return SpreadActor.over(1, name, SLOTS, groups)


def log_of(group: int, classes: Mapping[str, type[ReplicatedActor]] = CLASSES) -> Log:
    """Return an empty log of a group, of which nobody asks for owners."""
    log = Log(Streams(classes))
    log.machine.stop_leading()
    if group:
        log.machine.follow(GroupId(group), Streams(classes))
    return log


def called(log: Log, *calls: bytes) -> list[Any]:
    """Apply calls as a log has them, in a new session."""
    result = log.enter(build_batch([b""], kind=Kind.OPEN_SESSION))
    assert isinstance(result, dict)
    answer = log.enter(commands(int(result["session"]), 1, *calls))  # type: ignore[arg-type]
    assert isinstance(answer, CommandResults)
    return decoded(answer.results)


def held(logs: Mapping[GroupId, Log], name: str = "counter") -> dict[GroupId, HeldInstances]:
    return {group: each for group, log in logs.items() if (each := log.machine.held().get(name)) is not None}


def resharded(logs: dict[GroupId, Log], actor: SpreadActor) -> dict[GroupId, Log]:
    """Write the records of a reshard behind the logs, and begin the new groups."""
    found = held(logs, actor.name)
    coming = arrivals(actor, found)
    for group in actor.groups:
        logs.setdefault(group, log_of(group))
    for group, log in logs.items():
        if group != GROUP_0:
            for record in reshards([actor]):
                log.enter(record)
        for record in encode_instances(actor.name, version_of(actor.name, found), coming.get(group, ()), bytes_max=40):
            log.enter(record)
    return logs


def total(found: Mapping[GroupId, HeldInstances]) -> tuple[int, int]:
    return sum(len(each.instances) for each in found.values()), sum(each.state_sum for each in found.values()) % 2**128


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["add", "take"]), st.integers(1, 9)), max_size=60),
    st.lists(st.sampled_from(list(GROUPS)), min_size=2, max_size=4),
    st.data(),
)
def test_any_history_of_instances_is_divided_without_loss(
    history: list[tuple[int, str, int]], divisions: list[int], data: st.DataObject
) -> None:
    actor = over(GROUPS[divisions[0]])
    logs = {group: log_of(group) for group in actor.groups}
    expected: dict[str, int] = {}
    for number, method, amount in history:
        key = f"k{number}"
        (answer,) = called(logs[actor.group_of(key)], call(method, amount, key=key))
        expected[key] = answer if isinstance(answer, int) else expected.get(key, 0)
    for count in divisions[1:]:
        before = total(held(logs))
        actor = over(GROUPS[count])
        logs = resharded(logs, actor)
        found = held(logs)
        assert total(found) == before == (len(expected), before[1])
        check_owners(found, "counter", actor.group_of)
        if data.draw(st.booleans(), label="restart from snapshots"):
            for log in logs.values():
                group = log.machine._group
                log.machine = restored(log.machine, CLASSES)
                log.machine.follow(group, Streams(CLASSES))
    for key, value in expected.items():
        (answer,) = called(logs[actor.group_of(key)], call("add", 1, key=key))
        assert answer == value + 1


@pytest.mark.parametrize("before", list(GROUPS))
@pytest.mark.parametrize("after", list(GROUPS))
def test_the_sum_of_the_states_is_equal_for_1_3_and_8_groups(before: int, after: int) -> None:
    actor = over(GROUPS[before])
    logs = {group: log_of(group) for group in actor.groups}
    for number in range(60):
        called(logs[actor.group_of(str(number))], call("add", number, key=str(number)))
    sums = total(held(logs))
    actor = over(GROUPS[after])
    found = held(resharded(logs, actor))
    assert total(found) == sums
    check_owners(found, "counter", actor.group_of)
    assert len(found) == after, "each group has a part"


def test_a_member_that_begins_with_a_snapshot_or_with_the_whole_log_has_the_same_state() -> None:
    """Also the checksums, which members compare, after further calls."""
    old, new = over([10, 20]), over([20, 30])
    key = next(key for key in map(str, range(99)) if (old.group_of(key), new.group_of(key)) == (10, 20))
    logs = {GroupId(group): log_of(group) for group in (10, 20)}
    called(logs[GroupId(10)], call("add", 7, key=key))
    for number in range(20):
        called(logs[old.group_of(f"x{number}")], call("add", number, key=f"x{number}"))
    snapshot = list(pieces(logs[GroupId(20)].machine.begin_snapshot()))
    at = len(logs[GroupId(20)].applied)
    log = resharded(logs, new)[GroupId(20)]
    assert called(log, call("add", 1, key=key)) == [8]
    later = log_of(20).machine
    later.adopt(later.prepare(snapshot))
    whole = log_of(20).machine
    for machine, batches in ((later, log.applied[at:]), (whole, log.applied)):
        for batch in batches:
            machine.apply(Batch.decode(bytes(batch.buffer)))
        assert (machine.digest(), machine.chain, machine.lineage) == (
            log.machine.digest(),
            log.machine.chain,
            log.machine.lineage,
        )


def test_group_0_gets_the_owners_and_gives_its_instances_away() -> None:
    log = Log(Streams(CLASSES))
    first, second = established(log, "s1"), established(log, "s2")
    log.run(create(READER, "read"))
    log.machine.stop_leading()
    called(log, call("add", 3, key="a"), call("write", "x", actor="journal"))
    for groups in ([first], [first, second]):
        log.enter(encode_reshard("counter", SLOTS, groups))
        (actor,) = log.machine.query(SpreadActorsQuery())
        assert (actor.name, list(actor.groups)) == ("counter", groups)
    assert sorted(log.machine.held()) == ["journal"]
    assert restored(log.machine, CLASSES).query(SpreadActorsQuery()) == [actor]
    with pytest.raises(RequestError, match="belongs to group"):
        log.machine.query(ActorQuery("counter", "a", "read", arguments()))
    entries = [each[2:] for each in log.machine.query(AuditQuery(0)) if each[3] == "actor reshard"]
    assert entries[-1] == ["owner of the files", "actor reshard", f"counter: groups {first}, {second}"]


def test_ids_and_random_numbers_of_an_instance_that_came_are_those_of_its_new_log() -> None:
    """The pair of group and index is never used twice, so nothing is drawn again."""
    old, new = over([10, 20], "journal"), over([30, 20], "journal")
    logs = {GroupId(group): log_of(group) for group in (10, 20)}
    keys = [str(number) for number in range(40)]
    drawn = [called(logs[old.group_of(key)], call("write", "x", actor="journal", key=key))[0] for key in keys * 2]
    logs = resharded(logs, new)
    drawn += [called(logs[new.group_of(key)], call("write", "x", actor="journal", key=key))[0] for key in keys * 2]
    for part in (1, 2):
        assert len({line.split()[part] for line in drawn}) == len(drawn)


def test_watchers_begin_behind_the_reshard() -> None:
    log = log_of(10)
    called(log, call("add", 1, key="a"))
    log.enter(encode_reshard("counter", SLOTS, [10]))
    log.enter(next(encode_instances("counter", 1, [PackedInstance("b", 1, state_of(5))])))
    changes, index = log.machine._actors.changes("counter", None, 0)
    assert (changes, index) == ([], log.next_index)
    with pytest.raises(Exception, match="no longer kept"):
        log.machine._actors.changes("counter", None, 1)
    called(log, call("add", 1, key="b"))
    ((at, _, _, key, *_, result),), _ = log.machine._actors.changes("counter", None, index)
    assert (at, key, decode_result(result, ())) == (log.next_index - 1, "b", 6)


def state_of(value: int) -> bytes:
    packed: bytes = msgpack.packb({"total": value})
    return packed


def test_an_open_snapshot_is_given_up_because_instances_leave() -> None:
    log = log_of(10)
    called(log, call("add", 1, key="a"))
    cut = log.machine.begin_snapshot()
    cut.next_piece(10)
    log.enter(encode_reshard("counter", SLOTS, [20]))
    with pytest.raises(UnavailableError, match="abandoned"):
        list(pieces(cut))
    assert log.machine.held() == {}
    assert list(pieces(log.machine.begin_snapshot()))


# Versions of code.


class NewCounter(Counter):
    version = 2


def test_a_group_that_lacks_calls_of_the_newest_version_is_named() -> None:
    rows = [PackedInstance("k", 1, b"")]
    versions = {
        GroupId(1): HeldInstances(2, rows, 0),
        GroupId(5): HeldInstances(1, rows, 0),
        GroupId(9): HeldInstances(0, [], 0),
    }
    with pytest.raises(RequestError, match="has had calls of version 2 of its class, and not yet in 5: version 1"):
        version_of("counter", versions)
    del versions[GroupId(5)]
    assert version_of("counter", versions) == 2
    assert version_of("counter", {}) == 0


def test_a_group_that_instances_come_to_begins_no_era_with_their_next_call() -> None:
    """So its chain is comparable between members from the first call on."""
    log = log_of(10, {"counter": NewCounter})
    log.enter(next(encode_instances("counter", 2, [PackedInstance("k", 1, state_of(5))])))
    lineage = log.machine.lineage
    assert called(log, call("add", 1, key="k", version=2)) == [6]
    assert log.machine.lineage == lineage != 0
    assert log.machine.held()["counter"].version == 2


@pytest.mark.parametrize(
    ("classes", "version", "row"),
    [({}, 1, 1), ({"journal": Journal}, 0, 1), (CLASSES, 2, 1), (CLASSES, 1, 2)],
)
def test_instances_of_code_that_a_member_does_not_have_stop_it(
    classes: dict[str, type[ReplicatedActor]], version: int, row: int
) -> None:
    log = log_of(10, classes)
    with pytest.raises(OutdatedCodeError, match="the log holds instances of actor 'counter'"):
        log.enter(next(encode_instances("counter", version, [PackedInstance("k", row, state_of(5))])))


# Damage.


def fields(kind: Kind, **more: object) -> Batch:
    whole: dict[Kind, dict[str, object]] = {
        Kind.RESHARD_ACTOR: {"name": "counter", "slots": SLOTS, "groups": [10]},
        Kind.INSTANCES: {"name": "counter", "version": 1, "instances": []},
    }
    return command(kind, **{**whole[kind], **more})


@pytest.mark.parametrize(
    "record",
    [
        build_batch([b"\xc1"], kind=Kind.RESHARD_ACTOR),
        build_batch([b"\xc1"], kind=Kind.INSTANCES),
        fields(Kind.RESHARD_ACTOR, groups=[]),
        fields(Kind.RESHARD_ACTOR, groups=[0]),
        fields(Kind.RESHARD_ACTOR, groups=["10"]),
        fields(Kind.RESHARD_ACTOR, slots=0),
        fields(Kind.RESHARD_ACTOR, name=""),
        fields(Kind.INSTANCES, instances=[7]),
        fields(Kind.INSTANCES, instances=[["k", 1]]),
        fields(Kind.INSTANCES, instances=[["k", "1", b""]]),
        fields(Kind.INSTANCES, instances=[["k", -1, b""]]),
        fields(Kind.INSTANCES, instances=[["k", 1, b""], ["k", 1, b""]]),
    ],
)
def test_a_record_that_no_reshard_writes_is_damage_and_no_refusal(record: Batch) -> None:
    """A refusal would be skipped, and the group would go on without the instances."""
    with pytest.raises(CorruptionError):
        log_of(10).enter(record)


@pytest.mark.parametrize("kind", [Kind.RESHARD_ACTOR, Kind.INSTANCES])
def test_a_field_of_a_newer_release_stops_the_member(kind: Kind) -> None:
    with pytest.raises(OutdatedCodeError, match="newer"):
        log_of(10).enter(fields(kind, newer=1))


def test_group_0_refuses_owners_that_are_not_established() -> None:
    log = Log(Streams(CLASSES))
    with pytest.raises(CorruptionError, match="there is no group but group 0"):
        log.enter(encode_reshard("counter", SLOTS, [10]))
    established(log, "s1")
    with pytest.raises(CorruptionError, match="group 99 was never placed"):
        log.enter(encode_reshard("counter", SLOTS, [99]))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_forked", [False, True])
def test_a_leader_whose_node_has_an_old_state_of_group_0_goes_by_the_new_owners(
    is_restarted: bool, is_forked: bool
) -> None:
    """Group 0 of a new disk begins with a snapshot from before the reshard, or with the log from its beginning."""
    home = Log(Streams(CLASSES))
    first, second = (GroupId(established(home, name)) for name in ("s1", "s2"))
    home.run(encode_spread_actor("counter", [first]))
    machine = Streams(CLASSES)
    machine.follow(first, home.machine)
    machine.stop_leading()
    log = Log(machine)
    actor = over([second, first])
    for record in reshards([actor]):
        log.enter(record)
    if is_forked:
        log.enter(command(Kind.FORK, **{"from": "c0", "end": 7}))
    if is_restarted:
        machine.stop_leading()
        machine = restored(machine, CLASSES)
        machine.follow(first, home.machine)
        log = Log(machine, first_index=log.next_index)
    keys = {actor.group_of(key): key for key in map(str, range(20))}
    session = log.session()
    with pytest.raises(UnknownActorError, match=f"belongs to group {second}, not to group {first}"):
        log.propose(commands(session, 1, call("add", 1, key=keys[second])))
    with pytest.raises(UnknownActorError, match="belongs to the groups"):
        machine.query(ActorChangesQuery("counter", None, 0))
    log.run(commands(session, 1, call("add", 1, key=keys[first])))
    with pytest.raises(UnavailableError, match="is not spread over groups as far as this node knows"):
        log.propose(commands(session, 2, call("write", "x", actor="journal")))


def test_an_instance_in_a_group_that_does_not_own_it_is_found() -> None:
    rows = [PackedInstance("k", 1, b"")]
    actor = over([10, 20])
    own, other = (actor.group_of("k"), *set(actor.groups) - {actor.group_of("k")})
    check_owners({own: HeldInstances(1, rows, 0)}, "counter", actor.group_of)
    with pytest.raises(CorruptionError, match=rf"counter\['k'\] is in group {other}, and group {own} owns it"):
        check_owners({own: HeldInstances(1, rows, 0), other: HeldInstances(1, rows, 0)}, "counter", actor.group_of)


def test_a_state_that_no_record_can_hold_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "STATE_BYTES_MAX", 9)
    with pytest.raises(RequestError, match=r"the state of counter\['k'\] has 10 bytes, and one that moves may have 9"):
        arrivals(over([20]), {GroupId(10): HeldInstances(1, [PackedInstance("k", 1, bytes(10))], 0)})
    assert arrivals(over([10]), {GroupId(10): HeldInstances(1, [PackedInstance("k", 1, bytes(10))], 0)}) == {}


def test_instances_are_in_pieces_with_at_least_one_each() -> None:
    rows = [PackedInstance(str(number), 1, bytes(size)) for number, size in enumerate((1, 500, 30, 30, 30))]
    batches = list(encode_instances("counter", 3, rows, bytes_max=60))
    assert [len(decode_instances(batch)[2]) for batch in batches] == [2, 2, 1]
    assert [row for batch in batches for row in decode_instances(batch)[2]] == rows
    assert {decode_instances(batch)[:2] for batch in batches} == {("counter", 3)}


def test_changes_are_refused_for_instances_of_other_groups_as_before() -> None:
    log = Log(Streams(CLASSES))
    group = established(log, "s1")
    log.enter(encode_reshard("counter", SLOTS, [group]))
    with pytest.raises(RequestError, match="belongs to group"):
        log.machine.query(ActorChangesQuery("counter", "k", 0))
