"""The graceful end: waiting messages are handled first."""

from __future__ import annotations

import asyncio

import pytest

from viewstamp.actors import Actor, AsyncActor, Loss, Ref, Reply, Restart, System
from viewstamp.errors import ClosedError


class Worker(Actor[str]):
    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def on_message(self, message: str) -> None:
        self.notes.append(f"{self.ref.name} < {message}")
        if message == "boom":
            raise OSError("boom")

    def on_stop(self, error: BaseException | None) -> None:
        self.notes.append(f"{self.ref.name} stops")


class SlowWorker(AsyncActor[str]):
    """Works for a second on each message."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def on_message(self, message: str) -> None:
        await asyncio.sleep(1)
        self.notes.append(f"{self.ref.name} < {message}")

    async def on_stop(self, error: BaseException | None) -> None:
        self.notes.append(f"{self.ref.name} stops")


async def test_an_actor_that_finishes_handles_waiting_messages_and_accepts_no_more() -> None:
    notes: list[str] = []
    system = System()
    for kind in (Worker, SlowWorker):
        ref = system.spawn(lambda kind=kind: kind(notes), name="a")  # type: ignore[misc]
        ref.tell("1")
        ref.tell("2")
        ref.finish()
        ref.finish()
        assert not ref.is_alive
        with pytest.raises(ClosedError):
            ref.tell("3")
        ref.put("4")
        assert await ref.ended is None
        assert notes == ["a < 1", "a < 2", "a < 4", "a stops"]
        notes.clear()
    await system.stop()


async def test_an_idle_actor_finishes_at_once() -> None:
    notes: list[str] = []
    system = System()
    worker = system.spawn(lambda: Worker(notes), name="a")
    worker.finish()
    assert notes == ["a stops"]
    slow = system.spawn(lambda: SlowWorker(notes), name="b")
    slow.tell("1")
    await asyncio.sleep(5)
    slow.finish()
    await slow.ended
    assert notes == ["a stops", "b < 1", "b stops"]
    await system.stop()
    assert await system.failed is None


async def test_an_actor_may_finish_inside_its_own_turn() -> None:
    class Last(Worker):
        def on_message(self, message: str) -> None:
            self.ref.finish()
            self.ref.put("one more") if message == "1" else None
            super().on_message(message)

    class SlowLast(SlowWorker):
        async def on_message(self, message: str) -> None:
            self.ref.finish()
            await super().on_message(message)

    notes: list[str] = []
    system = System()
    ref = system.spawn(lambda: Last(notes), name="a")
    ref.tell("1")
    await ref.ended
    assert notes == ["a < 1", "a < one more", "a stops"]
    slow = system.spawn(lambda: SlowLast(notes), name="b")
    slow.tell("1")
    slow.tell("2")
    await slow.ended
    assert notes[3:] == ["b < 1", "b < 2", "b stops"]
    await system.stop()


async def test_an_async_actor_that_never_receives_is_stopped_at_once() -> None:
    class Loop(SlowWorker):
        async def run(self) -> None:
            await asyncio.sleep(1000)

    notes: list[str] = []
    system = System()
    ref = system.spawn(lambda: Loop(notes), name="a")
    await asyncio.sleep(1)
    ref.finish()
    async with asyncio.timeout(1):
        await ref.ended
    await system.stop()


async def test_a_parent_finishes_first_and_then_its_children() -> None:
    """Messages in the parent's mailbox may be work for its children."""

    class Pool(Worker):
        def on_start(self) -> None:
            self.worker: Ref[str] = self.spawn(lambda: SlowWorker(self.notes), name="worker")

        def on_message(self, message: str) -> None:
            super().on_message(message)
            self.worker.tell(message)

    notes: list[str] = []
    system = System()
    ref = system.spawn(lambda: Pool(notes), name="pool")
    for message in ("1", "2"):
        ref.tell(message)
    ref.finish()
    await ref.ended
    assert notes == [
        "pool < 1",
        "pool < 2",
        "pool/worker < 1",
        "pool/worker < 2",
        "pool/worker stops",
        "pool stops",
    ]
    await system.stop()


async def test_a_system_that_stops_with_grace_finishes_the_last_spawned_first() -> None:
    class Front(SlowWorker):
        def __init__(self, notes: list[str], behind: Ref[str]) -> None:
            super().__init__(notes)
            self.behind = behind

        async def on_message(self, message: str) -> None:
            await super().on_message(message)
            self.behind.tell(f"{message}, passed on")

    notes: list[str] = []
    system = System()
    store = system.spawn(lambda: Worker(notes), name="store")
    front = system.spawn(lambda: Front(notes, store), name="front")
    front.tell("1")
    front.tell("2")
    await system.stop(grace=10.0)
    assert notes == [
        "front < 1",
        "store < 1, passed on",
        "front < 2",
        "store < 2, passed on",
        "front stops",
        "store stops",
    ]
    assert sum(system.dead_letters.counts.values()) == 0


async def test_actors_that_have_not_finished_after_the_grace_are_stopped() -> None:
    notes: list[str] = []
    system = System()
    ref = system.spawn(lambda: SlowWorker(notes), name="a")
    for _ in range(5):
        ref.tell("x")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await system.stop(grace=2.5)
    assert loop.time() - began == pytest.approx(2.5, abs=0.01)
    assert notes == ["a < x", "a < x", "a stops"]
    assert system.dead_letters.counts[Loss.STOPPED] == 2
    assert await system.failed is None


async def test_a_graceful_stop_that_is_cancelled_has_stopped_everything() -> None:
    system = System()
    ref = system.spawn(lambda: SlowWorker([]), name="a")
    ref.tell("x")
    ref.tell("x")
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(system.stop(grace=100.0), 0.5)
    assert system.is_stopping
    await system.stop()
    assert system.refs == []


async def test_an_actor_that_waits_for_its_restart_finishes_its_messages_afterwards() -> None:
    notes: list[str] = []
    system = System(supervisor=Restart(delay_first=1.0))
    ref = system.spawn(lambda: Worker(notes), name="a")
    ref.tell("boom")
    ref.tell("1")
    idle = system.spawn(lambda: Worker(notes), name="b")
    idle.tell("boom")
    await asyncio.sleep(0.5)
    idle.finish()
    assert not idle.is_alive
    assert idle not in system.refs
    await system.stop(grace=10.0)
    assert notes == ["a < boom", "a stops", "b < boom", "b stops", "a < 1", "a stops"]


async def test_asks_that_wait_are_answered_and_those_after_are_closed() -> None:
    class Answering(AsyncActor[Reply[int]]):
        async def on_message(self, message: Reply[int]) -> None:
            await asyncio.sleep(1)
            message.resolve(1)

    system = System()
    ref = system.spawn(Answering, name="a")
    before: asyncio.Future[int] = ref.ask(lambda reply: reply, timeout=None)
    ref.finish()
    after: asyncio.Future[int] = ref.ask(lambda reply: reply, timeout=None)
    assert await before == 1
    with pytest.raises(ClosedError):
        await after
    await system.stop()
