"""Keyed topics in nodes: a get sees the last record of its key, from the log and from the runs, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from tests.node.damage import flip, segments
from tests.node.group import Group, wait_for
from tests.node.test_archivist import Store
from tests.node.test_catch_up import FORGETFUL
from viewstamp.archive.key_store import KeyObjects
from viewstamp.client.aio import Client
from viewstamp.errors import (
    CorruptionError,
    RequestError,
    StorageError,
    UnavailableError,
    UnknownTopicError,
    ViewstampError,
)
from viewstamp.ids import NodeId
from viewstamp.node import fitness, keyed_reads
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_queries import KeyedView, KeyedViewQuery, KeyRunQuery
from viewstamp.node.options import ArchiveRoundOptions
from viewstamp.node.peers import probe
from viewstamp.streams import key_plan
from viewstamp.wire.batch import Kind

pytestmark = [
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"),
    pytest.mark.slow,
]

ROUNDS = ArchiveRoundOptions(seconds=0.02, pause_seconds_max=0.1, dump_bytes=2000, range_bytes=1 << 30)
NEVER = ArchiveRoundOptions(seconds=0.02, pause_seconds_max=0.1, dump_bytes=1 << 30, range_bytes=1 << 30)


def group_of(path: Path, store: Store | None, rounds: ArchiveRoundOptions = ROUNDS, nodes: int = 1) -> Group:
    return Group(path, nodes, run_stores=lambda _: store, archive_rounds=rounds)


def view(group: Group, topic: str = "prices") -> KeyedView:
    return next(iter(group.nodes.values())).group.machine.query(KeyedViewQuery(topic))


async def keyed(client: Client, topic: str = "prices") -> None:
    await client.create_topic(topic)
    await client.configure_keyed(topic)


async def dumped(group: Group, beyond: int = 1, topic: str = "prices") -> None:
    """Wait until the records of a topic before ``beyond`` are dumped."""
    await wait_for(lambda: view(group, topic).dumped_end >= beyond, group.journal.tail)


async def contents(client: Client, topic: str = "prices") -> dict[bytes, bytes]:
    found = [record async for record in client.scan(topic)]
    assert [record.key for record in found] == sorted({record.key for record in found if record.key is not None})
    return {record.key or b"": record.value for record in found}


async def test_a_get_sees_the_last_record_of_a_key_in_the_log_and_in_runs(tmp_path: Path) -> None:
    entropy, expected = random.Random(5), dict[bytes, bytes]()
    async with group_of(tmp_path, Store(tmp_path)) as group:
        await group.run()
        client = group.client()
        await client.create_topic("prices")
        await client.append("prices", b"before it was keyed", key=b"early")
        expected[b"early"] = b"before it was keyed"
        await client.configure_keyed("prices")
        await client.append("prices", b"no key at all")
        for number in range(300):
            key, value = f"key {entropy.randrange(40)}".encode(), f"{number} ".encode() * entropy.randrange(9)
            await client.append("prices", value, key=key, headers={"n": b"%d" % number} if number % 7 == 0 else None)
            expected[key] = value
            if not value:
                del expected[key]
            some = f"key {entropy.randrange(40)}".encode()
            record = await client.get("prices", some)
            assert (record.value if record is not None else None) == expected.get(some), number
            if number % 60 == 59:
                assert await contents(client) == expected
        await dumped(group, 100)
        assert await contents(client) == expected
        assert await client.get("prices", "nothing") is None
        last = {record.key: record async for record in client.read("prices") if record.key is not None}
        for key in expected:
            assert await client.get("prices", key) == last[key], "position, term, index, time, headers too"
        some = sorted(key for key in expected if b"key 1" <= key < b"key 3")
        assert [record.key async for record in client.scan("prices", b"key 1", b"key 3")] == some
        assert [record.key async for record in client.scan("prices", prefix=b"key 1")] == [
            key for key in some if key.startswith(b"key 1")
        ]
        with patched(keyed_reads, _STEP_BYTES=1):
            assert await contents(client) == expected


async def test_scans_of_many_pages_have_each_key_once(tmp_path: Path) -> None:
    async with group_of(tmp_path, Store(tmp_path)) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        expected = {b"%05d" % (number * 7919 % 1000): b"%d" % number * 40 for number in range(1000)}
        for start in range(0, 1000, 100):
            part = list(expected.items())[start : start + 100]
            await client.append_many("prices", [value for _, value in part], keys=[key for key, _ in part])
        await dumped(group, 500)
        from viewstamp.node import keyed_requests

        with patched(keyed_requests, SCAN_BYTES=3000):
            assert await contents(client) == expected


async def test_the_table_is_rebuilt_from_the_log_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with group_of(tmp_path, store, NEVER) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        for number in range(20):
            await client.append("prices", b"%d" % number, key=b"%d" % (number % 3))
        await group.stop("n1")
        await group.run()
        assert await contents(group.client()) == {b"0": b"18", b"1": b"19", b"2": b"17"}
        assert view(group).ranges[0].runs == (), "nothing was dumped"


async def test_a_get_asks_the_runs_that_may_hold_the_key_and_reads_one_group_of_one(tmp_path: Path) -> None:
    with patched(key_plan, FAN=1000):  # A merge in between would change the number of runs.
        async with group_of(tmp_path, Store(tmp_path)) as group:
            await group.run()
            client = group.client()
            await keyed(client)
            for run in range(3):
                batch = [b"%d-%d" % (run, number) for number in range(200)]
                await client.append_many(
                    "prices", batch, keys=[b"run %d key %03d" % (run, number) for number in range(200)]
                )
                await dumped(group, 200 * (run + 1) + 1)
            runs = len(view(group).ranges[0].runs)
            assert runs >= 1
            reads = group.nodes[NodeId("n1")].keyed
            for run in range(3):
                found = await reads.get("prices", b"run %d key 100" % run)
                assert found.row is not None
                assert found.row.value == b"%d-100" % run
                assert (found.groups, found.runs <= runs) == (1, True), "one group of the one run that holds it"
            missing = [await reads.get("prices", b"run 1 key x%d" % number) for number in range(200)]
            assert all(found.row is None and found.runs == runs for found in missing)
            assert sum(found.groups for found in missing) <= 20, "the filters pass one of a hundred"


@pytest.mark.parametrize("step", ["begin_dump", "check_keys"])
async def test_a_store_that_fails_at_any_step_leaves_the_view_as_it_was(tmp_path: Path, step: str) -> None:
    store, is_failing = Store(tmp_path), [True]

    original = getattr(KeyObjects, step)

    def failing_call(self: KeyObjects, *args: object, **named: object) -> object:
        if is_failing[0]:
            raise StorageError(f"no {step}")
        return original(self, *args, **named)

    async with group_of(tmp_path, store) as group:
        await group.run()
        client = group.client()
        with patched(KeyObjects, **{step: failing_call}):
            await keyed(client)
            expected = {b"%d" % number: b"x" * 100 for number in range(60)}
            for key, value in expected.items():
                await client.append("prices", value, key=key)
            await wait_for(lambda: "no " in str(group.nodes[NodeId("n1")].status["archiving"]), group.journal.tail)
            assert view(group).dumped_end == 1
            assert await contents(client) == expected
            is_failing[0] = False
            await dumped(group, 40)
            assert await contents(client) == expected
        await wait_for(
            lambda: len(store.files()) == len({run.id for each in view(group).ranges for run in each.runs}),
            group.journal.tail,
        )


async def test_a_run_whose_file_cannot_be_removed_stays_known(tmp_path: Path) -> None:
    store, is_failing = Store(tmp_path), [True]

    def fail(step: str) -> None:
        if step == "remove" and is_failing[0]:
            raise StorageError("no removal")

    async with group_of(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        await client.append_many("prices", [b"x" * 100] * 30, keys=[b"%d" % number for number in range(30)])
        await dumped(group, 31)
        [run] = view(group).ranges[0].runs
        store.before = fail
        await client.configure_keyed("prices", False)
        machine = group.nodes[NodeId("n1")].group.machine

        def is_decided() -> bool:
            status = str(group.nodes[NodeId("n1")].status["archiving"])
            return "be removed" in status or machine.query(KeyRunQuery(run.id)) is None

        await wait_for(is_decided, group.journal.tail)
        known = machine.query(KeyRunQuery(run.id))
        assert known is not None
        assert known.state == "dropped"
        is_failing[0] = False
        await wait_for(lambda: machine.query(KeyRunQuery(run.id)) is None, group.journal.tail)
        assert store.files() == []


async def test_a_store_that_lies_gets_no_commit_of_keys(tmp_path: Path) -> None:
    store, lies = Store(tmp_path), [3]
    original = KeyObjects.check_keys

    def lie(self: KeyObjects, run: ArchivedRun) -> Generator[int, None, None]:
        file = store.file(run.id)
        if lies[0]:
            lies[0] -= 1
            file.write_bytes(file.read_bytes()[:-1])
        return original(self, run)

    async with group_of(tmp_path, store) as group:
        await group.run()
        client = group.client()
        with patched(KeyObjects, check_keys=lie):
            await keyed(client)
            await client.append_many("prices", [b"x" * 100] * 30, keys=[b"%d" % number for number in range(30)])
            await dumped(group, 31)
        assert not lies[0]
        [run] = view(group).ranges[0].runs
        assert store.files() == [store.file(run.id).name], "what was not as it was written is gone"
        assert len(await contents(client)) == 30


async def test_records_that_are_not_dumped_are_not_trimmed(tmp_path: Path) -> None:
    async with group_of(tmp_path, Store(tmp_path), NEVER) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        await client.append_many("prices", [b"1", b"2"], keys=[b"a", b"b"])
        with pytest.raises(RequestError, match="is keyed, and its keys are dumped up to position 0"):
            await client.trim_topic("prices", 2)
        await client.configure_topic("prices", retain_seconds=0.001)
        await client.append("prices", b"3", key=b"c")
        await dumped(group, 3)
        assert await contents(client) == {b"a": b"1", b"b": b"2", b"c": b"3"}, "the retention waits for the dump"
        await client.trim_topic("prices", 3)
        assert (await client.get("prices", b"a")) is not None, "the record is only in the view"
        await client.configure_keyed("prices", False)
        with pytest.raises(RequestError, match="is not keyed"):
            await client.get("prices", b"a")
        await client.configure_keyed("prices", True)
        assert b"a" not in await contents(client), "a new view has what the topic keeps"


async def test_bad_input_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with group_of(tmp_path, None, NEVER) as group:
        await group.run()
        client = group.client()
        await client.create_topic("prices")
        with pytest.raises(RequestError, match="no directory for the archive"):
            await client.configure_keyed("prices")
        with pytest.raises(RequestError, match="is not keyed"):
            await client.get("prices", b"a")
        with pytest.raises(UnknownTopicError):
            await client.get("nothing", b"a")
        with pytest.raises(RequestError, match="over the limit"):
            await client.get("prices", b"x" * (1 << 20) + b"x")
        with pytest.raises(RequestError, match="not int"):
            await client.get("prices", 7)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="a prefix and a range"):
            await anext(client.scan("prices", b"a", prefix=b"b"))


async def test_a_damaged_run_is_named_and_read_again_when_it_is_mended(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with group_of(tmp_path, store) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        batch = [b"%d" % number * 8 for number in range(100)]
        await client.append_many("prices", batch, keys=[b"key %03d" % number for number in range(100)])
        await dumped(group, 101)
        [file] = [store.directory / name for name in store.files()]
        intact = file.read_bytes()
        file.write_bytes(intact[:-40] + bytes(40))
        with pytest.raises(CorruptionError, match=file.name):
            await client.get("prices", b"key 007")
        file.write_bytes(intact)
        found = await client.get("prices", b"key 007")
        assert found is not None
        assert found.value == b"7" * 8


@pytest.mark.parametrize("nodes", [3, 1])
async def test_a_damaged_log_is_no_damaged_run(tmp_path: Path, nodes: int) -> None:
    """The remedies differ: a node repairs its log from the others, and a run has to be put back, or the view ended."""
    store = Store(tmp_path)
    async with Group(tmp_path, nodes, run_stores=lambda _: store, archive_rounds=NEVER, core=FORGETFUL) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        for number in range(40):
            await client.append("prices", b"%d" % number * 2000, key=b"%d" % number)
        leader = (await group.leader()).options.node
        value = b"20" * 2000
        [path] = [path for path in segments(tmp_path / leader) if value in path.read_bytes()]
        flip(path, path.read_bytes().index(value))
        if nodes == 1:
            with pytest.raises(ViewstampError, match="the log cannot be read at index") as raised:
                await group.nodes[NodeId("n1")].keyed.get("prices", b"39")
            assert isinstance(raised.value, UnavailableError)
            return
        found = await client.get("prices", b"39")
        assert found is not None
        assert found.value == b"39" * 2000
        assert group.journal.of("! starts again", node=leader)


async def test_a_table_has_a_bound_and_says_so(tmp_path: Path) -> None:
    async with group_of(tmp_path, Store(tmp_path), NEVER) as group:
        await group.run()
        client = group.client()
        await keyed(client)
        await keyed(client, "other")
        for topic in ("prices", "other"):
            await client.append_many(topic, [b"x" * 100] * 100, keys=[b"%d" % number for number in range(100)])
        reads = group.nodes[NodeId("n1")].keyed
        with patched(keyed_reads, _STEP_BYTES=1000):
            reads._table_bytes = 60_000
            assert len(await contents(client)) == 100
            assert len(await contents(client, "other")) == 100, "the table of the first topic was dropped"
            await client.append_many("other", [b"x" * 100] * 100, keys=[b"more %d" % number for number in range(100)])
            await client.append_many("other", [b"x" * 100] * 9, keys=[b"last %d" % number for number in range(9)])
            with pytest.raises(UnavailableError, match="need more than the 60,000 bytes"):
                await reads.get("other", b"1")


async def test_a_member_of_an_older_release_gets_no_record_about_keys(tmp_path: Path) -> None:
    store, found = Store(tmp_path), list[Kind]()
    original = probe.find_unfit

    async def note(network: object, cluster: object, others: object, kind: Kind) -> object:
        found.append(kind)
        return await original(network, cluster, others, kind)  # type: ignore[arg-type]

    with patched(fitness, find_unfit=note):
        async with group_of(tmp_path, store, NEVER) as group:
            await group.run()
            client = group.client()
            await keyed(client)
            await keyed(client, "other")
            assert found == [Kind.FORGET_KEYS], "before the first record only"
