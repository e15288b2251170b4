"""Stop-all, clean stops and cancellation: the life of all actors together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from viewstamp.actors import Actor, AsyncActor, Directive, Failure, System
from viewstamp.errors import ClosedError, StorageError
from viewstamp.sim.loop import SimulatedCrash, SimulatedLoop, run


class Worker(Actor[Callable[[], object]]):
    """Calls its messages, and records its end in a shared list."""

    def __init__(self, ends: list[str], name: str) -> None:
        self.ends = ends
        self.name = name

    def on_message(self, message: Callable[[], object]) -> None:
        message()

    def on_stop(self, error: BaseException | None) -> None:
        self.ends.append(f"{self.name} {error}")


class Waiter(AsyncActor[Callable[[], object]]):
    """The same with a task; its end takes a second."""

    def __init__(self, ends: list[str], name: str) -> None:
        self.ends = ends
        self.name = name

    async def on_message(self, message: Callable[[], object]) -> None:
        result = message()
        if asyncio.iscoroutine(result):
            await result

    async def on_stop(self, error: BaseException | None) -> None:
        await asyncio.sleep(1)
        self.ends.append(f"{self.name} {error}")


def boom() -> None:
    raise StorageError("sync failed")


async def test_one_failed_actor_stops_all_with_its_cause() -> None:
    ends: list[str] = []
    told: list[Failure] = []
    system = System(on_failed=told.append)
    refs = [system.spawn(Worker(ends, name), name=name) for name in ("a", "b", "c")]
    refs[1].tell(boom)
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "b"
    assert isinstance(failure.error, StorageError)
    assert told == [failure]
    assert ends == ["c sync failed", "b sync failed", "a sync failed"]
    assert not any(ref.is_alive for ref in refs)
    await system.stop()
    assert system.failures == [failure]


async def test_no_turn_runs_after_a_failed_one() -> None:
    """No part may acknowledge anything after a neighbouring part has failed, because half a node is worse than none."""
    ends: list[str] = []
    ran: list[str] = []
    system = System()
    a = system.spawn(Worker(ends, "a"), name="a")
    b = system.spawn(Worker(ends, "b"), name="b")
    a.tell(boom)
    b.tell(lambda: ran.append("b"))
    await asyncio.sleep(1)
    assert ran == []
    await system.stop()


async def test_a_failed_async_actor_stops_all_as_well() -> None:
    ends: list[str] = []
    system = System()
    system.spawn(Worker(ends, "a"), name="a")
    b = system.spawn(Waiter(ends, "b"), name="b")
    system.spawn(Waiter(ends, "c"), name="c")
    b.tell(boom)
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "b"
    assert ends == ["a sync failed"]  # the tasks take their second to end
    await system.stop()
    assert sorted(ends) == ["a sync failed", "b sync failed", "c sync failed"]


async def test_a_failure_reported_from_outside_stops_all() -> None:
    ends: list[str] = []
    system = System()
    system.spawn(Worker(ends, "a"), name="a")
    error = StorageError("the executor is gone")
    system.fail(error)
    system.fail(StorageError("and again"))
    assert await system.failed == Failure("", error)
    assert ends == ["a the executor is gone"]
    assert len(system.failures) == 2
    await system.stop()


async def test_a_failure_inside_a_turn_that_it_reports_itself_lets_the_turn_end() -> None:
    ends: list[str] = []
    system = System()
    ref = system.spawn(Worker(ends, "a"), name="a")
    ref.tell(lambda: system.fail(StorageError("seen here")))
    ref.tell(lambda: ends.append("rest of the turn"))
    await asyncio.sleep(0)
    assert ends == ["rest of the turn", "a seen here"]
    await system.stop()


async def test_a_clean_stop_goes_backwards_and_fails_no_actor() -> None:
    ends: list[str] = []
    system = System()
    for name in ("a", "b", "c"):
        system.spawn(Worker(ends, name), name=name)
    failed = system.failed
    await system.stop()
    await system.stop()
    assert ends == ["c None", "b None", "a None"]
    assert await failed is None
    assert await system.failed is None
    assert system.refs == []


async def test_a_system_without_actors_stops() -> None:
    system = System()
    await system.stop()
    assert await system.failed is None


async def test_stop_waits_for_the_last_task() -> None:
    ends: list[str] = []
    system = System()
    system.spawn(Waiter(ends, "a"), name="a")
    system.spawn(Waiter(ends, "b"), name="b")
    await asyncio.sleep(0)
    system.begin_stop()
    assert ends == []
    await system.stop()
    assert sorted(ends) == ["a None", "b None"]


async def test_a_cancelled_stop_has_stopped_everything_and_can_be_awaited_again() -> None:
    ends: list[str] = []
    system = System()
    ref = system.spawn(Waiter(ends, "a"), name="a")
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(system.stop(), 0.5)
    assert not ref.is_alive
    assert ends == []
    await system.stop()
    assert ends == ["a None"]


async def test_nothing_is_spawned_once_it_stops() -> None:
    system = System("node")
    system.begin_stop()
    with pytest.raises(ClosedError, match="'node' is stopping, so 'late' was not spawned"):
        system.spawn(Worker([], "late"), name="late")
    await system.stop()


async def test_a_factory_that_stops_the_system_spawns_nothing() -> None:
    system = System()

    def make() -> Worker:
        system.begin_stop()
        return Worker([], "late")

    with pytest.raises(ClosedError):
        system.spawn(make, name="late")
    await system.stop()
    assert system.refs == []


async def test_an_actor_is_spawned_once_and_under_a_name_of_its_own() -> None:
    system = System()
    worker = Worker([], "a")
    system.spawn(worker, name="a")
    with pytest.raises(AssertionError, match="spawned before, as 'a'"):
        system.spawn(worker, name="b")
    with pytest.raises(AssertionError, match="an actor named 'a' lives already"):
        system.spawn(Worker([], "a"), name="a")
    system.refs[0].stop()
    system.spawn(Worker([], "a"), name="a")
    await system.stop()


async def test_an_actor_that_stops_alone_leaves_the_others_alive() -> None:
    ends: list[str] = []
    system = System()
    a = system.spawn(Worker(ends, "a"), name="a")
    b = system.spawn(Waiter(ends, "b"), name="b")
    await asyncio.sleep(0)
    b.stop()
    b.stop()
    await asyncio.sleep(2)
    assert ends == ["b None"]
    assert a.is_alive
    assert system.refs == [a]
    await system.stop()


async def test_an_error_in_on_stop_is_a_failure_and_the_others_still_stop() -> None:
    ends: list[str] = []

    class Clumsy(Worker):
        def on_stop(self, error: BaseException | None) -> None:
            super().on_stop(error)
            raise KeyError(self.name)

    told: list[Failure] = []
    system = System(on_failed=told.append)
    system.spawn(Worker(ends, "a"), name="a")
    system.spawn(Clumsy(ends, "b"), name="b")
    await system.stop()
    assert ends == ["b None", "a None"]
    assert [failure.actor for failure in told] == ["b"]
    assert await system.failed == told[0]


async def test_the_first_failure_is_the_cause_and_the_rest_stand_behind_it() -> None:
    class Clumsy(Worker):
        def on_stop(self, error: BaseException | None) -> None:
            raise KeyError(self.name)

    told: list[Failure] = []
    system = System(on_failed=told.append)
    a = system.spawn(Clumsy([], "a"), name="a")
    system.spawn(Clumsy([], "b"), name="b")
    a.tell(boom)
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, StorageError)
    assert told == [failure]
    assert [(each.actor, type(each.error)) for each in system.failures] == [
        ("a", StorageError),
        ("b", KeyError),
        ("a", KeyError),
    ]
    await system.stop()


async def test_an_error_in_an_async_on_stop_of_one_actor_stops_all() -> None:
    class Clumsy(Waiter):
        async def on_stop(self, error: BaseException | None) -> None:
            raise KeyError(self.name)

    ends: list[str] = []
    system = System()
    system.spawn(Worker(ends, "a"), name="a")
    clumsy = system.spawn(Clumsy(ends, "b"), name="b")
    await asyncio.sleep(0)
    clumsy.stop()
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "b"
    assert ends == ["a 'b'"]
    await system.stop()


async def test_waiting_for_failed_may_be_cancelled_without_harm() -> None:
    system = System()
    other = asyncio.ensure_future(system.failed)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(system.failed, 1)
    await system.stop()
    assert await other is None


async def test_a_cancelled_error_out_of_a_turn_is_a_failure() -> None:
    """The loop would drop it without an error, and the actor would go on with half a turn done."""
    system = System()
    ref = system.spawn(Worker([], "a"), name="a")
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    ref.tell(future.result)
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, asyncio.CancelledError)
    await system.stop()


async def test_an_async_actor_cancelled_from_outside_is_a_failure_and_ends_cancelled() -> None:
    ends: list[str] = []
    system = System()
    system.spawn(Worker(ends, "a"), name="a")
    system.spawn(Waiter(ends, "b"), name="b")
    await asyncio.sleep(0)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "actor b"]
    task.cancel()
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "b"
    assert isinstance(failure.error, asyncio.CancelledError)
    await system.stop()
    assert task.cancelled()
    assert ends == ["a ", "b "]


async def test_an_async_actor_cancelled_before_its_first_step_is_a_failure_too() -> None:
    ends: list[str] = []
    system = System()
    system.spawn(Waiter(ends, "b"), name="b")
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "actor b"]
    task.cancel()
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "b"
    await system.stop()
    assert ends == []


async def test_an_async_actor_stopped_before_its_first_step_is_only_ended() -> None:
    """It may own a connection, which ``on_stop`` closes."""

    class Noting(Waiter):
        async def on_start(self) -> None:
            self.ends.append("never")

    ends: list[str] = []
    system = System()
    system.spawn(Noting(ends, "b"), name="b").tell(lambda: ends.append("never"))
    await system.stop()
    assert ends == ["b None"]
    assert await system.failed is None


async def test_an_async_actor_that_stops_itself_and_returns_from_run_ends_undisturbed() -> None:
    class Quitter(Waiter):
        async def run(self) -> None:
            self.stop()

    ends: list[str] = []
    system = System()
    system.spawn(Quitter(ends, "a"), name="a")
    await asyncio.sleep(2)
    assert ends == ["a None"]
    assert system.refs == []
    await system.stop()


async def test_an_async_actor_that_stops_itself_is_cancelled_at_its_next_await() -> None:
    class Quitter(Waiter):
        async def run(self) -> None:
            self.stop()
            await asyncio.sleep(1000)
            self.ends.append("never")

    ends: list[str] = []
    system = System()
    system.spawn(Quitter(ends, "a"), name="a")
    await asyncio.sleep(2)
    assert ends == ["a None"]
    await system.stop()


async def test_a_handler_that_swallows_its_cancellation_cannot_keep_the_actor_alive() -> None:
    ends: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ends.append("swallowed")

    system = System()
    ref = system.spawn(Waiter(ends, "a"), name="a")
    ref.tell(stubborn)
    await asyncio.sleep(1)
    await system.stop()
    assert ends == ["swallowed", "a None"]
    assert await system.failed is None


async def test_an_async_actor_handles_in_order_one_at_a_time() -> None:
    order: list[str] = []

    def step(name: str) -> Callable[[], object]:
        async def run() -> None:
            order.append(f"{name} begins")
            await asyncio.sleep(1)
            order.append(f"{name} ends")

        return run

    system = System()
    ref = system.spawn(Waiter([], "a"), name="a")
    ref.tell(step("1"))
    ref.tell(step("2"))
    await asyncio.sleep(0.5)
    ref.tell(step("3"))
    await asyncio.sleep(5)
    assert order == ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]
    await system.stop()


async def test_an_async_actor_that_returns_from_run_ends_and_stops_no_other() -> None:
    class Twice(AsyncActor[int]):
        def __init__(self) -> None:
            self.sum = 0

        async def run(self) -> None:
            self.sum = await self.receive() + await self.receive()

    system = System()
    twice = Twice()
    ref = system.spawn(twice, name="twice")
    ref.tell(1)
    await asyncio.sleep(1)
    ref.tell(2)
    ref.tell(3)
    await asyncio.sleep(1)
    assert twice.sum == 3
    assert not ref.is_alive
    assert system.refs == []
    assert not system.is_stopping
    await system.stop()


async def test_an_async_actor_may_stop_itself() -> None:
    ends: list[str] = []
    system = System()
    waiter = Waiter(ends, "a")
    ref = system.spawn(waiter, name="a")
    ref.tell(waiter.stop)
    ref.tell(lambda: ends.append("never"))
    await asyncio.sleep(2)
    assert ends == ["a None"]
    await system.stop()
    assert await system.failed is None


async def test_an_async_actor_that_fails_in_on_start_fails_the_system() -> None:
    class Broken(Waiter):
        async def on_start(self) -> None:
            raise OSError("refused")

    system = System()
    system.spawn(Broken([], "a"), name="a")
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, OSError)
    await system.stop()


async def test_an_async_actor_begins_with_on_start_while_messages_wait() -> None:
    order: list[str] = []

    class Slow(Waiter):
        async def on_start(self) -> None:
            await asyncio.sleep(1)
            order.append("started")

    system = System()
    ref = system.spawn(Slow([], "a"), name="a")
    ref.tell(lambda: order.append("message"))
    await asyncio.sleep(2)
    assert order == ["started", "message"]
    await system.stop()


async def test_receive_that_is_cancelled_loses_no_message() -> None:
    got: list[int] = []

    class Patient(AsyncActor[int]):
        async def run(self) -> None:
            while True:
                try:
                    async with asyncio.timeout(1):
                        got.append(await self.receive())
                except TimeoutError:
                    got.append(-1)

    system = System()
    ref = system.spawn(Patient(), name="patient")
    loop = asyncio.get_running_loop()
    for number in range(5):
        loop.call_later(number, ref.tell, number)  # each one races with a timeout
    await asyncio.sleep(5.5)
    assert [number for number in got if number >= 0] == [0, 1, 2, 3, 4]
    await system.stop()


async def test_an_actor_asks_for_the_end_of_all_and_cannot_wait_for_it() -> None:
    ends: list[str] = []
    system = System()
    ref = system.spawn(Waiter(ends, "a"), name="a")
    ref.tell(system.stop)
    failure = await system.failed
    assert failure is not None
    assert "cannot wait for its own end" in str(failure.error)
    await system.stop()

    system = System()
    ref = system.spawn(Waiter(ends, "b"), name="b")
    ref.tell(system.begin_stop)
    assert await system.failed is None
    assert ends[-1] == "b None"


async def test_the_supervisor_is_asked_with_the_failure() -> None:
    asked: list[Failure] = []

    class Noting:
        def decide(self, failure: Failure) -> Directive:
            asked.append(failure)
            return Directive.STOP_ALL

    system = System(supervisor=Noting())
    system.spawn(Worker([], "a"), name="a").tell(boom)
    failure = await system.failed
    assert asked == [failure]
    await system.stop()


async def test_messages_waiting_at_a_stop_are_shown_to_the_actor_before_its_end() -> None:
    """A proposal with a callback instead of a reply is answered, too."""

    class Caring(Worker):
        def on_dropped(self, messages: list[Callable[[], object]]) -> None:
            self.ends.append(f"dropped {len(messages)}")

    class AlsoCaring(Waiter):
        def on_dropped(self, messages: list[Callable[[], object]]) -> None:
            self.ends.append(f"dropped {len(messages)}")

    ends: list[str] = []
    system = System()
    worker = Caring(ends, "a")
    a = system.spawn(worker, name="a")
    a.tell(lambda: a.tell(boom))
    a.tell(worker.stop)
    await asyncio.sleep(0)
    assert ends == ["dropped 1", "a None"]

    ends.clear()
    b = system.spawn(AlsoCaring(ends, "b"), name="b")
    b.tell(lambda: asyncio.sleep(100))
    b.tell(boom)
    b.tell(boom)
    system.spawn(Caring(ends, "c"), name="c").tell(boom)
    await system.failed
    await system.stop()
    # b was spawned first and so stops last; by then it has its first message in hand.
    assert ends == ["c sync failed", "dropped 2", "b sync failed"]


async def test_an_error_in_on_dropped_is_a_failure_and_on_stop_comes_all_the_same() -> None:
    class Clumsy(Worker):
        def on_dropped(self, messages: list[Callable[[], object]]) -> None:
            raise KeyError("dropped")

    ends: list[str] = []
    system = System()
    system.spawn(Clumsy(ends, "a"), name="a").tell(boom)
    await system.stop()
    assert [repr(failure.error) for failure in system.failures] == ["KeyError('dropped')"]
    assert ends == ["a None"]


async def test_an_actor_that_ends_inside_a_failing_turn_ends_once() -> None:
    ends: list[str] = []
    system = System()
    worker = Worker(ends, "a")
    ref = system.spawn(worker, name="a")
    ref.tell(worker.stop)
    ref.tell(boom)
    failure = await system.failed
    assert failure is not None
    assert failure.actor == "a"
    assert ends == ["a None"]
    await system.stop()


def test_actors_run_on_uvloop_too() -> None:
    """The loop of a real node is another implementation of the same calls."""
    uvloop = pytest.importorskip("uvloop")

    class Brief(Waiter):
        async def on_stop(self, error: BaseException | None) -> None:
            self.ends.append(f"{self.name} {error}")

    async def main() -> list[str]:
        ends: list[str] = []
        system = System()
        system.spawn(Brief(ends, "a"), name="a").tell(lambda: None)
        worker = Worker(ends, "b")
        done = asyncio.get_running_loop().create_future()
        system.spawn(worker, name="b").tell(lambda: worker.schedule(0.001, lambda: done.set_result(None)))
        await done
        system.fail(StorageError("gone"))
        await system.stop()
        return ends

    with asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=True) as runner:
        assert runner.run(main()) == ["b gone", "a gone"]


def simulate(seed: int) -> list[str]:
    """Run a dozen actors that talk at random moments, in simulated time; return the events in order."""
    events: list[str] = []

    class Chatter(Actor[int]):
        def __init__(self, number: int, entropy: random.Random) -> None:
            self.number = number
            self.entropy = entropy

        def on_start(self) -> None:
            self.schedule(self.entropy.random(), -1)

        def on_messages(self, messages: list[int]) -> None:
            events.append(f"{asyncio.get_running_loop().time():.6f} {self.number} < {messages}")
            if -1 in messages:
                self.entropy.choice(self.system.refs).tell(self.number)
                self.schedule(self.entropy.random(), -1)

        def on_stop(self, error: BaseException | None) -> None:
            events.append(f"{self.number} = stopped {error}")

    async def main() -> None:
        system = System()
        for number in range(12):
            system.spawn(Chatter(number, random.Random(f"{seed}/{number}")), name=str(number))
        await asyncio.sleep(60)
        await system.stop()

    run(main(), seed=seed)
    return events


def test_the_same_seed_gives_the_same_turns_on_a_simulated_loop() -> None:
    events = simulate(7)
    assert len(events) > 1000
    assert events[-1] == "0 = stopped None"
    assert simulate(7) == events
    assert simulate(8) != events


def test_a_process_that_dies_inside_a_turn_runs_no_code_after_it() -> None:
    """A supervisor gets no failure from a power cut."""
    ends: list[str] = []
    told: list[Failure] = []
    loop = SimulatedLoop(1)
    process = loop.process("n1")

    def die() -> None:
        process.kill()
        raise SimulatedCrash("n1")

    async def main() -> None:
        system = System(on_failed=told.append)
        b = system.spawn(Worker(ends, "b"), name="b")
        a = system.spawn(Worker(ends, "a"), name="a")
        system.spawn(Waiter(ends, "c"), name="c")
        await asyncio.sleep(1)
        a.tell(die)
        b.tell(lambda: ends.append("never"))

    process.spawn(main())
    loop.run_for(10)
    assert ends == []
    assert told == []
    loop.close()
