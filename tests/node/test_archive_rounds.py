"""Topics with archive settings are archived without a request; whatever fails, nothing is lost, and it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutants import both, patched
from tests.node.group import CALM, PATIENCE_SECONDS, SMALL, Group, wait_for
from tests.node.test_archivist import OnceAt, Store, failing, filled
from viewstamp.client.aio import Client
from viewstamp.doctor.archive import archive_trouble
from viewstamp.doctor.report import Report
from viewstamp.errors import (
    AccessDeniedError,
    ConfigError,
    OutcomeUnknownError,
    RequestError,
    StorageError,
    StorageFullError,
    TopicExistsError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
    ViewstampError,
)
from viewstamp.ids import NodeId
from viewstamp.node import server
from viewstamp.node.archive_queries import RunsQuery
from viewstamp.node.archivist import Archivist
from viewstamp.node.options import ArchiveRoundOptions
from viewstamp.node.peers import probe
from viewstamp.node.snapshots import policy
from viewstamp.streams import state
from viewstamp.wal.budget import WalOptions
from viewstamp.wire.batch import Batch, Kind

pytestmark = [
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed"),
    pytest.mark.slow,
]

N1 = NodeId("n1")
ROUNDS = ArchiveRoundOptions(seconds=0.02, wait_seconds=0.0, pause_seconds_max=0.1)
BOUNDED = WalOptions(
    segment_bytes=SMALL.segment_bytes,
    bytes_max=6 * SMALL.segment_bytes,
    reserve_bytes=0,
    margin_bytes=SMALL.segment_bytes // 4,
)


@contextmanager
def quick() -> Iterator[None]:
    """Let ages and delays end without a wait for the next second."""
    with patched(state, _SECOND_US=1000):
        yield


def one_node(path: Path, store: Store | None) -> Group:
    """Return a node whose rounds are many in a second, and in which each record is due at once."""
    return Group(path, 1, run_stores=lambda _: store, archive_rounds=ROUNDS)


def positions(group: Group, topic: str = "orders") -> list[tuple[int, int]]:
    """Return the first and the last position of each committed run of a topic, as one member has applied them."""
    member = next(iter(group.nodes.values()))
    runs = [run for run in member.group.machine.query(RunsQuery()) if run["topic"] == topic]
    return [(run["first"], run["last"]) for run in runs if run["state"] == "committed"]  # type: ignore[misc]


async def archived_up_to(group: Group, last: int, topic: str = "orders") -> None:
    """Wait until the records of a topic up to ``last`` are in committed runs, which tile."""

    def is_archived() -> bool:
        found = positions(group, topic)
        return bool(found) and found[-1][1] >= last

    await wait_for(is_archived, group.journal.tail)
    found = positions(group, topic)
    assert [end + 1 for _, end in found[:-1]] == [first for first, _ in found[1:]], group.journal.tail()


def archiving(group: Group, node: str = "n1") -> dict[str, Any]:
    found = group.nodes[NodeId(node)].status["archiving"]
    assert isinstance(found, dict)
    return found


async def test_a_topic_archives_itself_and_deletes_what_is_older_than_its_delete_age(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with quick():
        async with one_node(tmp_path, store) as group:
            await group.run()
            client = group.client()
            await filled(client, topic="plain")
            await filled(client)
            info = await client.configure_topic("orders", archive=True)
            assert info.archive is not None
            await archived_up_to(group, 10)
            await client.append("orders", b"more")
            await archived_up_to(group, 11)
            assert positions(group, "plain") == [], "it has no archive"
            records = [record async for record in client.read("orders", 1, end=12)]
            assert len(records) == 11
            described = await client.describe_topic("orders")
            assert described.archived is not None
            assert (described.archived.first_position, described.archived.last_position) == (1, 11)
            assert described.archived.bytes == sum(run.bytes for run in await client.list_runs())
            assert described.archived.waiting_since == 0
            assert await client.archive_topic("orders", 5) == 12, "an operator's request changes nothing"
            await client.configure_topic("orders", delete_after_seconds=0.05)
            await wait_for(lambda: store.files() == [], group.journal.tail)
            assert (await client.describe_topic("orders")).first_position == 12
            with pytest.raises(TrimmedError):
                await anext(client.read("orders", 1))
            await wait_for(lambda: archiving(group)["state"] == "idle", group.journal.tail)
            assert await client.list_runs() == []
            await client.configure_topic("orders", archive=False)
            await client.append("orders", b"alone")
            await wait_for(lambda: archiving(group)["state"] == "off", group.journal.tail)
            assert (await client.describe_topic("orders")).archive is None


async def test_the_archivist_is_on_as_soon_as_a_topic_has_the_archive(tmp_path: Path) -> None:
    """It once said "off" until the next round, so for 10 s."""
    rare = replace(ROUNDS, seconds=3600.0)
    async with Group(tmp_path, 1, run_stores=lambda _: Store(tmp_path), archive_rounds=rare) as group:
        await group.run()
        client = group.client()
        await client.create_topic("orders")
        for is_on, state in ((False, "off"), (True, "idle"), (False, "off")):
            await client.configure_topic("orders", archive=is_on)
            assert archiving(group)["state"] == state


async def test_a_topic_whose_archive_fails_keeps_its_records_and_the_others_go_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with quick():
        async with one_node(tmp_path, store) as group:
            await group.run()
            client = group.client()
            await filled(client)
            await filled(client, topic="trades")
            begin = store.begin

            def only_trades(run: Any, topic: Any, first: Any, schema: str) -> Any:
                if topic == 1:
                    raise StorageError("the disk of the store is full", remedy="free space there")
                return begin(run, topic, first, schema)

            store.begin = only_trades  # type: ignore[method-assign]
            for topic in ("orders", "trades"):
                await client.configure_topic(topic, archive=True, delete_after_seconds=3600)
            await archived_up_to(group, 10, "trades")

            def failing_twice() -> dict[str, Any] | None:
                found = archiving(group)
                return found if found["state"] == "failing" and found["failures"] > 1 else None

            found = await wait_for(failing_twice, group.journal.tail)
            assert (found["topic"], found["failed_topic"]) == ("orders", "orders")
            assert "the disk of the store is full" in found["reason"]
            assert found["remedy"] == "free space there"
            [finding] = archive_trouble(Report(nodes=[{"id": "n1", "reachable": True, "archiving": found}]))
            assert finding.code == "not_archiving"
            assert finding.sentence.startswith("n1 leads, and cannot archive topic orders, so the logs keep")
            assert positions(group) == []
            assert len([record async for record in client.read("orders", 1, end=11)]) == 10
            await client.append("trades", b"more")
            await archived_up_to(group, 11, "trades")
            store.begin = begin  # type: ignore[method-assign]
            await archived_up_to(group, 10)
            await wait_for(lambda: archiving(group)["state"] == "idle", group.journal.tail)
            assert archiving(group)["reason"] == ""
            assert len(store.files()) == len(await client.list_runs()), "nothing is left of the attempts"


async def test_deleted_runs_leave_the_store_after_a_crash_at_any_step(tmp_path: Path) -> None:
    """The process dies before it proposes DROP_RUN, before it removes the object, and before it proposes FORGET_RUN."""
    store = Store(tmp_path)
    propose = Archivist._propose

    def dying(kind: Kind) -> Any:
        async def fail(self: Archivist, batch: Batch) -> dict[str, object]:
            if batch.kind is kind:
                raise SystemError
            return await propose(self, batch)

        return fail

    steps = [
        lambda: patched(Archivist, _propose=dying(Kind.DROP_RUN)),
        lambda: patched(Store, remove=lambda self, run: failing(SystemError())()),
        lambda: patched(Archivist, _propose=dying(Kind.FORGET_RUN)),
    ]
    with quick():
        async with one_node(tmp_path, store) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders", archive=True)
            for number, step in enumerate(steps, 1):
                await client.append("orders", b"x")
                await archived_up_to(group, number)
                with step():
                    await client.trim_topic("orders", number + 1)
                    await wait_for(lambda: archiving(group)["failures"] > 0, group.journal.tail)
                    assert len(await client.list_runs()) == 1
                    await group.stop("n1")
                await group.run("n1")
                await wait_for(lambda: store.files() == [], group.journal.tail)
                machine = group.nodes[N1].group.machine
                await wait_for(lambda machine=machine: not machine.query(RunsQuery()), group.journal.tail)  # type: ignore[misc]


async def test_the_next_leader_goes_on_where_the_last_one_was_stopped(tmp_path: Path) -> None:
    """The first leader is held between two steps; it leaves an orphan, and no run is damaged or missing."""
    stores = {NodeId(name): Store(tmp_path) for name in ("n1", "n2", "n3")}
    entered, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_SECONDS)

    with both(quick(), patched(probe, _SECONDS=PATIENCE_SECONDS)):
        async with Group(tmp_path, run_stores=lambda node: stores[node], core=CALM, archive_rounds=ROUNDS) as group:
            await group.run()
            await group.caught_up()
            client = group.client()
            await filled(client)
            old = str((await group.leader()).options.node)
            stores[NodeId(old)].before = OnceAt("finish", wait)
            try:
                await client.configure_topic("orders", archive=True)
                await wait_for(entered.is_set, group.journal.tail)
                assert archiving(group, old)["state"] == "writing"
                while str((await group.leader()).options.node) == old:
                    with suppress(ViewstampError):  # A busy machine may need another attempt.
                        await client.transfer_leadership()
                await archived_up_to(group, 10)
            finally:
                go_on.set()
            await wait_for(lambda: archiving(group, old)["state"] == "off", group.journal.tail)
            assert positions(group) == [(1, 10)]
            [run] = [run for run in await client.list_runs() if run.state == "committed"]
            assert await client.check_run(run.id) == ""
            await client.find_orphans(remove=True)
            assert stores[N1].files() == [stores[N1].file(run.id).name]


async def test_a_full_log_gets_room_because_its_records_are_archived(tmp_path: Path) -> None:
    """Records of four times the size of the log are appended; without the archive the log would stay full."""
    store = Store(tmp_path)
    with both(quick(), patched(policy, _DROP_SECONDS=0.05, _IDLE_LOOK_SECONDS=0.05)):
        async with Group(tmp_path, 1, run_stores=lambda _: store, wal=BOUNDED, archive_rounds=ROUNDS) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders", archive=True, archive_delay_seconds=0.0)
            async with asyncio.timeout(3 * PATIENCE_SECONDS):
                appended = 0
                while appended * 8000 < 4 * BOUNDED.bytes_max:
                    try:
                        await client.append("orders", appended.to_bytes(8, "big") * 1000)
                        appended += 1
                    except (StorageFullError, UnavailableError):
                        await asyncio.sleep(0.01)
            last = (await client.describe_topic("orders")).last_position
            read = [record.value[:8] async for record in client.read("orders", 1, end=last + 1)]
            assert list(dict.fromkeys(read)) == [number.to_bytes(8, "big") for number in range(appended)]


async def is_appended(client: Client, size: int) -> bool:
    """Return whether the log has room for a record of this size."""
    try:
        await client.append("orders", bytes(size), timeout=5.0)
    except (StorageFullError, UnavailableError, OutcomeUnknownError):
        return False
    return True


async def test_an_operator_archives_a_topic_whose_records_have_filled_the_log(tmp_path: Path) -> None:
    """Its records may use the reserve, because the log can delete nothing before the run is committed."""
    store = Store(tmp_path)
    with both(quick(), patched(policy, _DROP_SECONDS=0.05, _IDLE_LOOK_SECONDS=0.05)):
        async with Group(tmp_path, 1, run_stores=lambda _: store, wal=BOUNDED, archive_rounds=ROUNDS) as group:
            await group.run()
            client = group.client()
            await client.create_topic("orders")
            for size in (8000, 100):  # The second size fills what the first one leaves.
                while await is_appended(client, size):
                    pass
            last = (await client.describe_topic("orders")).last_position
            assert await client.archive_topic("orders", delay=0.0, timeout=PATIENCE_SECONDS) == last + 1
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await is_appended(client, 8000):
                    pass


async def test_a_leader_that_cannot_archive_leads_and_says_so(tmp_path: Path) -> None:
    def no_pyarrow() -> None:
        raise ConfigError("runs of archived records need pyarrow", remedy="pip install 'viewstamp[archive]'")

    unable = Store(tmp_path)
    unable.check_usable = no_pyarrow  # type: ignore[method-assign]
    with quick():
        for each, reason in ((None, "has no directory for the archive"), (unable, "need pyarrow")):
            async with one_node(tmp_path / reason, each) as group:
                await group.run()
                client = group.client()
                await filled(client, 2)
                assert archiving(group)["state"] == "off"
                await client.configure_topic("orders", archive=True)
                await wait_for(lambda group=group: archiving(group)["state"] == "unable", group.journal.tail)  # type: ignore[misc]
                assert reason in archiving(group)["reason"]
                await client.append("orders", b"more")
                assert len([record async for record in client.read("orders", 1, end=4)]) == 3
                assert group.nodes[N1].group.machine.status()["archived_topics"] == 1


async def test_no_settings_are_written_that_a_member_cannot_read(tmp_path: Path) -> None:
    with patched(server, Kind=[Kind.CONTEXT]):  # The highest kind in its WELCOME.
        async with Group(tmp_path) as group:
            await group.run()
            client = group.client()
            await filled(client, 2)
            before = group.nodes[N1].group.machine.digest()
            for call, topic in ((client.configure_topic, "orders"), (client.create_topic, "trades")):
                with pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 31"):
                    await call(topic, archive=True)
            with pytest.raises(RequestError, match=r"n[123]: runs a release that cannot read records of kind 39"):
                await client.set_schema("orders", "id: int64")
            assert [topic.name for topic in await client.list_topics()] == ["orders"]
            await group.caught_up()
            assert group.nodes[N1].group.machine.digest() == before


async def test_settings_need_an_administrator_and_runs_are_listed_to_readers_of_their_topic(tmp_path: Path) -> None:
    store = Store(tmp_path)
    async with one_node(tmp_path, store) as group:
        await group.run()
        client = group.client()
        for topic in ("orders", "trades"):
            await filled(client, topic=topic)
            await client.archive_topic(topic)
        _, token = await client.create_token("ops", ["administer"])
        ops = group.client(token=token, seed=2)
        _, token = await ops.create_token("reader", ["read:orders", "append:orders"])
        reader = group.client(token=token, seed=3)
        assert [run.topic for run in await reader.list_runs()] == ["orders"]
        _, token = await ops.create_token("writer", ["append"])
        for caller in (group.client(token=token, seed=4), group.client()):
            with pytest.raises(AccessDeniedError):
                await caller.list_runs()
        for call in (reader.configure_topic, reader.create_topic):
            with pytest.raises(AccessDeniedError):
                await call("orders", archive=True)
        await ops.configure_topic("orders", archive=True, delete_after_seconds=90 * 86_400)
        entry = (await ops.list_audit())[-1]
        assert (entry.action, entry.by.partition(" (")[0]) == ("topic configure", "token ops")
        assert "archive on, after_seconds 0, delay_seconds 86400, delete_seconds 7.776e+06" in entry.subject
        with pytest.raises(TopicExistsError):
            await ops.create_topic("orders", archive=True)
        with pytest.raises(UnknownTopicError):
            await ops.configure_topic("unknown", archive=True)
