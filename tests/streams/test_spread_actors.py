"""Spread actors: each instance has one owner for ever, and no other group carries out its calls."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutants.mutants import patched
from tests.streams.actors import CLASSES, arguments, call, commands, decoded, result_of
from tests.streams.log import Log, command, pieces, restored
from tests.streams.test_placement import cancel, established, hosted, place, placed
from tests.streams.test_tokens import READER, create
from viewstamp.errors import CorruptionError, OutdatedCodeError, RequestError, UnavailableError, UnknownActorError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.actor_owners import ActorSpreadingQuery, OwnedQuery, SpreadActorsQuery
from viewstamp.node.state_machine import (
    ActorChangesQuery,
    ActorQuery,
    ActorsQuery,
    Answered,
    AuditQuery,
    CommandResults,
    InterfaceQuery,
)
from viewstamp.streams import Streams, spread_actors
from viewstamp.streams.spread_actors import ACTOR_GROUPS_MAX
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import Interface
from viewstamp.wire.spread_actors import SpreadActor, actor_slot, encode_spread_actor
from viewstamp.wire.spreading import SLOTS


@pytest.fixture
def log() -> Log:
    return Log(Streams(CLASSES))


def over(*groups: int, name: str = "counter", **more: Any) -> Batch:
    return encode_spread_actor(name, groups, **more)


def fields(**more: object) -> Batch:
    """Return a record with fields of any type."""
    whole: dict[str, object] = {"name": "counter", "slots": SLOTS, "groups": [1], "are_named": False}
    return command(Kind.SPREAD_ACTOR, **{**whole, **more})


def copy_of(record: Batch) -> Batch:
    return Batch.decode(bytearray(record.buffer))


def spread(log: Log) -> list[SpreadActor]:
    return log.machine.query(SpreadActorsQuery())


def key_in(actor: SpreadActor, group: int) -> str:
    return next(key for key in map(str, range(1000)) if actor.group_of(key) == group)


def instances(log: Log, name: str = "counter") -> int:
    return int(next(str(each["instances"]) for each in log.machine.query(ActorsQuery()) if each["name"] == name))


def group_of(log: Log, group: int) -> Log:
    """Return the log of another group on the same node."""
    other = Log(Streams(CLASSES))
    other.machine.follow(GroupId(group), log.machine)
    return other


def test_an_actor_is_spread_by_one_record_and_a_copy_finds_it(log: Log) -> None:
    first, second = established(log, "s1"), established(log, "s2")
    index = log.next_index
    result = log.run(over(first, second))
    assert result == {"actor": {"id": index, "name": "counter", "slots": 4093, "ranges": [[0, first], [2046, second]]}}
    (actor,) = spread(log)
    assert actor.groups == (first, second)
    for copy in (over(first, second), over(first, second, are_named=True), over(second)):
        admission = log.propose(copy_of(copy))
        assert isinstance(admission, Answered)
        assert admission.result == result == log.enter(copy)
        assert log.machine.query(ActorSpreadingQuery(copy)) == actor
    for other, message in (
        (over(second, first, are_named=True), r"is spread with the groups \[1, 5\], not \[5, 1\]"),
        (over(first, second, slots=9), "with the slots 4093, not 9"),
    ):
        for attempt in (log.propose, log.enter):
            with pytest.raises(RequestError, match=message):
                attempt(copy_of(other))
    assert spread(log) == [actor]


def test_group_0_refuses_each_instance_of_a_spread_actor_and_creates_none(log: Log) -> None:
    """Also for a client of an older release, which calls group 0, and for one that wants to read or to watch."""
    group, session = established(log, "s1"), log.session()
    log.run(over(group))
    with pytest.raises(UnknownActorError, match=rf"counter\['k'\] belongs to group {group}, not to group 0") as refused:
        log.propose(commands(session, 1, call("write", "a", actor="journal"), call("add", 1, key="k")))
    assert refused.value.is_spread
    for query in (ActorQuery("counter", "k", "read", arguments()), ActorChangesQuery("counter", "k", 0)):
        with pytest.raises(UnknownActorError, match="belongs to group"):
            log.machine.query(query)
    with pytest.raises(UnknownActorError, match=rf"actor 'counter' belongs to group {group}"):
        log.machine.query(ActorChangesQuery("counter", None, 0))
    assert instances(log) == 0
    written = log.run(commands(session, 1, call("write", "a", actor="journal")))
    assert isinstance(written, CommandResults)
    with pytest.raises(CorruptionError, match="instances of 'counter' 0 expected"):
        log.enter(commands(session, 2, call("add", 1, key="k")))
    assert instances(log) == 0


def test_a_group_carries_out_the_calls_of_its_instances_only(log: Log) -> None:
    first, second = established(log, "s1"), established(log, "s2")
    log.run(over(first, second))
    (actor,) = spread(log)
    own, foreign = key_in(actor, first), key_in(actor, second)
    group = group_of(log, first)
    session = group.session()
    with pytest.raises(
        UnknownActorError, match=rf"counter\['{foreign}'\] belongs to group {second}, not to group {first}"
    ):
        group.propose(commands(session, 1, call("add", 1, key=own), call("add", 1, key=foreign)))
    assert instances(group) == 0
    result = group.run(commands(session, 1, call("add", 7, key=own)))
    assert isinstance(result, CommandResults)
    assert decoded(result.results) == [7]
    group.machine.query(ActorQuery("counter", own, "read", arguments()))
    group.machine.query(ActorChangesQuery("counter", own, 1))
    for query in (
        ActorQuery("counter", foreign, "read", arguments()),
        ActorChangesQuery("counter", foreign, 1),
        ActorChangesQuery("counter", None, 1),
    ):
        with pytest.raises(UnknownActorError) as refused:
            group.machine.query(query)
        assert refused.value.is_spread


def test_a_group_on_a_node_that_lags_carries_out_nothing(log: Log) -> None:
    """The actor may be one of group 0, or be spread. So the client tries again, there or at another node."""
    first = established(log, "s1")
    group = group_of(log, first)
    session = group.session()
    with pytest.raises(UnavailableError, match="'counter' is not spread over groups as far as this node knows"):
        group.propose(commands(session, 1, call("add", 1)))
    with pytest.raises(UnavailableError):
        group.machine.query(ActorQuery("counter", "", "read", arguments()))
    log.run(over(first))
    group.run(commands(session, 1, call("add", 1)))


def test_calls_of_instances_that_a_group_has_go_on_while_its_node_lags(log: Log) -> None:
    """After a restart without the majority of group 0 the node has the instances, and not the record yet."""
    first, second = established(log, "s1"), established(log, "s2")
    log.run(over(first, second))
    (actor,) = spread(log)
    key = key_in(actor, first)
    group = group_of(log, first)
    session = group.session()
    group.run(commands(session, 1, call("add", 7, key=key)))
    restarted = Log(restored(group.machine, CLASSES), first_index=group.next_index)
    restarted.machine.follow(GroupId(first), Streams(CLASSES))
    result = restarted.run(commands(session, 2, call("add", 1, key=key)))
    assert isinstance(result, CommandResults)
    assert decoded(result.results) == [8]
    assert result_of(restarted.machine.query(ActorQuery("counter", key, "read", arguments()))) == 8
    restarted.machine.query(ActorChangesQuery("counter", key, 0))
    for calls in ([call("add", 1, key="new")], [call("add", 1, key=key), call("add", 1, key="new")]):
        with pytest.raises(UnavailableError, match="is not spread over groups as far as this node knows"):
            restarted.propose(commands(session, 3, *calls))
    with pytest.raises(UnavailableError):
        restarted.machine.query(ActorChangesQuery("counter", None, 0))


def test_an_actor_with_an_instance_cannot_be_spread(log: Log) -> None:
    """Also if the instance is created by a command that is in the log before the record."""
    group, session = established(log, "s1"), log.session()
    log.propose(commands(session, 1, call("add", 1, key="k")))
    log.propose(over(group))
    with pytest.raises(UnavailableError, match="'counter' is being spread"):
        log.propose(commands(session, 2, call("add", 1, key="k")))
    log.propose(commands(session, 2, call("write", "a", actor="journal")))
    log.apply()
    with pytest.raises(RequestError, match="actor 'counter' has 1 instances in group 0, whose states cannot move"):
        log.apply()
    log.apply()
    assert spread(log) == []
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match="whose states cannot move"):
            attempt(over(group))
    log.run(commands(session, 3, call("add", 1, key="k")))
    log.run(over(group, name="other"))  # No class here is needed for the record.


def test_a_command_behind_the_record_in_the_log_waits_and_is_then_refused(log: Log) -> None:
    group, session = established(log, "s1"), log.session()
    log.propose(over(group))
    log.propose(over(group))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="nothing was written"):
            log.propose(commands(session, 1, call("add", 1, key="k")))
        log.apply()
    with pytest.raises(UnknownActorError):
        log.propose(commands(session, 1, call("add", 1, key="k")))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (over(9), "group 9 was never placed, so it cannot have instances of actor 'counter'"),
        (over(5), "group 5 is not established yet"),
        (over(), "cannot be spread over 0 groups"),
        (over(*range(1, ACTOR_GROUPS_MAX + 2)), "over 257 groups"),
        (over(1, 1), r"over the groups \[1, 1\]"),
        (over(1, slots=0), "over 1 groups cannot have 0 slots"),
        (over(1, slots=1 << 40), "cannot have 1099511627776 slots"),
        (fields(groups=["1"]), r"over the groups \['1'\]"),
        (fields(groups=[True]), r"over the groups \[True\]"),
        (fields(groups=[0]), r"over the groups \[0\]"),
        (fields(groups=1), "whose groups is 1"),
        (fields(slots=None), "whose slots is None"),
        (fields(are_named=0), "whose are_named is 0"),
        (fields(name=7), "whose name is 7"),
        (fields(name=""), "cannot be named ''"),
        (fields(name="a" * 101), "cannot be named 'aaa"),
        (build_batch([b"\xc1"], kind=Kind.SPREAD_ACTOR), "not valid MessagePack"),
    ],
)
def test_bad_records_are_refused_with_their_values_and_change_nothing(log: Log, record: Batch, message: str) -> None:
    established(log, "s1")
    placed(log, "s2")
    for attempt in (log.propose, log.enter):
        with pytest.raises(RequestError, match=message):
            attempt(copy_of(record))
    assert spread(log) == []


def test_there_is_a_limit_of_spread_actors(log: Log) -> None:
    group = established(log, "s1")
    with patched(spread_actors, SPREAD_ACTORS_MAX=1):
        log.run(over(group))
        for attempt in (log.propose, log.enter):
            with pytest.raises(RequestError, match="would exceed the limit of 1 spread actors"):
                attempt(over(group, name="journal"))


def test_a_field_of_a_newer_release_stops_the_member(log: Log) -> None:
    group = established(log, "s1")
    for attempt in (log.propose, log.enter):
        with pytest.raises(OutdatedCodeError, match="'weight', which this release does not know"):
            attempt(fields(groups=[group], weight=1))


def test_a_snapshot_has_the_actors_and_older_releases_can_read_one_without_any(log: Log) -> None:
    def version() -> int:
        cut = log.machine.begin_snapshot()
        header = msgpack.unpackb(next(pieces(cut)))
        cut.close()
        return int(header[1][0])

    group, session = established(log, "s1"), log.session()
    assert version() == 5
    log.run(over(group))
    assert version() == 10
    other = restored(log.machine, CLASSES)
    assert other.query(SpreadActorsQuery()) == spread(log)
    assert (other.digest(), other.chain) == (log.machine.digest(), log.machine.chain)
    copy = Log(other, first_index=log.next_index)
    with pytest.raises(UnknownActorError, match="belongs to group"):
        copy.propose(commands(session, 1, call("add", 1)))


def test_members_with_other_groups_for_an_actor_have_other_chains() -> None:
    chains = set()
    for choice in ((1, 5), (5, 1)):
        log = Log(Streams(CLASSES))
        established(log, "s1")
        established(log, "s2")
        log.run(over(*choice))
        chains.add(log.machine.chain)
    assert len(chains) == 2


def test_a_fork_leaves_the_instances_to_the_old_cluster(log: Log) -> None:
    group = established(log, "s1")
    log.run(over(group))
    log.enter(command(Kind.FORK, **{"from": "c0", "end": 7}))
    assert spread(log) == []
    log.run(commands(log.session(), 1, call("add", 1)))


def test_the_audit_log_has_the_spreading_once(log: Log) -> None:
    group = established(log, "s1")
    log.run(create(READER, "read"))
    log.run(over(group, by="token ops"))
    log.enter(over(group, by="token ops"))
    entries = [each[2:] for each in log.machine.query(AuditQuery(0)) if each[3] == "actor spread"]
    assert entries == [["token ops", "actor spread", f"counter: groups {group}"]]


def test_the_description_of_an_actor_has_its_owners(log: Log) -> None:
    group = established(log, "s1")
    assert "spread" not in log.machine.query(InterfaceQuery("counter"))
    log.run(over(group))
    assert Interface.from_wire(log.machine.query(InterfaceQuery("counter"))).spread == spread(log)[0]
    assert Interface.from_wire(log.machine.query(InterfaceQuery("journal"))).spread is None
    groups = {each["name"]: each.get("groups") for each in log.machine.query(ActorsQuery())}
    assert groups == {"counter": [group], "journal": None}
    status: Any = log.machine.status()["actors"]
    assert {name: each.get("groups") for name, each in status.items()} == groups


@pytest.mark.parametrize(
    "image",
    [
        7,
        [7],
        [[9, "counter", 4093]],
        [["9", "counter", 4093, [1]]],
        [[0, "counter", 4093, [1]]],
        [[9, 7, 4093, [1]]],
        [[9, "", 4093, [1]]],
        [[9, "counter", "4093", [1]]],
        [[9, "counter", 4093, 1]],
        [[9, "counter", 4093, []]],
        [[9, "counter", 4093, [2]]],
        [[9, "counter", 4093, ["1"]]],
        [[9, "counter", 4093, [1]], [9, "journal", 4093, [1]]],
        [[9, "counter", 4093, [1]], [10, "counter", 4093, [1]]],
    ],
)
def test_an_image_that_breaks_an_invariant_is_damage(log: Log, image: object) -> None:
    group = established(log, "s.1")
    log.run(over(group))
    whole = list(pieces(log.machine.begin_snapshot(), 1 << 20))
    _, header = msgpack.unpackb(whole[0])
    assert header[11] == [[5, "counter", 4093, [1]]]
    header[11] = image
    whole[0] = msgpack.packb(["state", header])
    with pytest.raises(CorruptionError):
        Streams(CLASSES).prepare(whole)


def test_instances_of_several_actors_with_the_same_key_fall_apart() -> None:
    slots = {actor_slot(f"actor {number}", "k", SLOTS) for number in range(100)}
    assert len(slots) > 90
    assert actor_slot("ab", "c", SLOTS) != actor_slot("a", "bc", SLOTS)


# Histories.

GROUPS = st.integers(1, 12)
NAMES = st.sampled_from(["counter", "journal"])
RECORDS = st.one_of(
    st.builds(place, st.sampled_from(["a", "b"]), members=st.just({"n1": "a:1"}), since=st.just(30)),
    st.builds(hosted, GROUPS, st.just("n1"), st.just("0" * 16)),
    st.builds(hosted, GROUPS, st.just("n1"), st.just("0" * 16)),
    st.builds(cancel, GROUPS),
    st.builds(
        lambda name, groups: over(*groups, name=name), NAMES, st.lists(GROUPS, min_size=1, max_size=2, unique=True)
    ),
    st.builds(lambda name: ("call", name), NAMES),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=25), st.data())
def test_in_every_history_no_actor_has_instances_in_group_0_and_in_others(
    history: Sequence[Any], data: st.DataObject
) -> None:
    """Batches are admitted while earlier ones are not applied yet, as on a leader; snapshots change nothing."""
    log = Log(Streams(CLASSES))
    session, sequence = log.session(), 0
    known: list[SpreadActor] = []
    for entry in history:
        is_call = isinstance(entry, tuple)
        method, amount = ("add", 1) if is_call and entry[1] == "counter" else ("write", "a")
        record = commands(session, sequence + 1, call(method, amount, actor=entry[1])) if is_call else copy_of(entry)
        try:
            log.propose(record)
        except (RequestError, UnavailableError):
            pass
        else:
            sequence += is_call
        while log.unapplied and data.draw(st.booleans()):
            with suppress(RequestError):
                log.apply()
        present = spread(log)
        assert present[: len(known)] == known, "no actor changes, or goes"
        known = present
        for actor in known:
            assert instances(log, actor.name) == 0
    copy = restored(log.machine, CLASSES)
    assert copy.query(SpreadActorsQuery()) == known
    for actor in known:
        with pytest.raises(UnknownActorError):
            copy.query(OwnedQuery([(actor.name, "k")], GROUP_0))
