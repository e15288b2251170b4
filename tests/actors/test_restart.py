"""Restarts: a fresh actor behind the same reference, the messages that it finds, and the fate of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from viewstamp.actors import (
    Actor,
    AsyncActor,
    Decision,
    Directive,
    Failure,
    Loss,
    Reply,
    Restart,
    RestartIn,
    System,
)
from viewstamp.errors import ClosedError, OutcomeUnknownError, UnavailableError
from viewstamp.sim.loop import SimulatedLoop, run

SOON = Restart(delay_first=1.0, delay_max=8.0, restarts_max=3, window=100.0)


@dataclass
class Lives:
    """The factory of the actors under test, with their notes."""

    notes: list[str] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    """The failing step of each life to come: "", "factory", "on_start" or "on_stop"."""
    began: float | None = None
    """The loop's time at the first note; the times of the others are relative to it."""

    def note(self, number: int, what: str) -> None:
        now = asyncio.get_running_loop().time()
        if self.began is None:
            self.began = now
        self.notes.append(f"{now - self.began:g} {number} {what}")

    def next_failure(self) -> str:
        return self.fails.pop(0) if self.fails else ""

    def turns(self) -> Turns:
        return Turns(self)

    def task(self) -> Task:
        return Task(self)

    def maybe_fail(self, actor: Turns | Task, where: str) -> None:
        if actor.fails == where:
            raise RuntimeError(f"{where} {actor.number}")


class Turns(Actor[object]):
    """Records all events with the number of its life; calls messages that are callable."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.number = len(lives.objects) + 1
        self.fails = lives.next_failure()
        lives.objects.append(self)
        lives.maybe_fail(self, "factory")

    def note(self, what: str) -> None:
        self.lives.note(self.number, what)

    def on_start(self) -> None:
        self.note("starts")
        self.lives.maybe_fail(self, "on_start")

    def on_message(self, message: object) -> None:
        self.note(f"< {getattr(message, '__name__', message)}")
        if callable(message):
            message()

    def on_dropped(self, messages: list[object]) -> None:
        self.note(f"dropped {messages}")

    def on_stop(self, error: BaseException | None) -> None:
        self.note(f"stops {error}")
        self.lives.maybe_fail(self, "on_stop")


class Task(AsyncActor[object]):
    """The same with a task; its end takes a quarter of a second."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.number = len(lives.objects) + 1
        self.fails = lives.next_failure()
        lives.objects.append(self)
        lives.maybe_fail(self, "factory")

    note = Turns.note

    async def on_start(self) -> None:
        self.note("starts")
        self.lives.maybe_fail(self, "on_start")

    async def on_message(self, message: object) -> None:
        self.note(f"< {getattr(message, '__name__', message)}")
        if callable(message):
            result = message()
            if asyncio.iscoroutine(result):
                await result

    def on_dropped(self, messages: list[object]) -> None:
        self.note(f"dropped {messages}")

    async def on_stop(self, error: BaseException | None) -> None:
        await asyncio.sleep(0.25)
        self.note(f"stops {error}")
        self.lives.maybe_fail(self, "on_stop")


def boom() -> None:
    raise OSError("boom")


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    reply: Reply[int]
    then: Callable[[], object] | None = None

    @property
    def __name__(self) -> str:
        return "question"

    def __call__(self) -> None:
        if self.then is not None:
            self.then()


async def test_a_failed_actor_is_replaced_by_a_fresh_one_behind_the_same_reference() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.turns, name="a")
    ref.tell(boom)
    await asyncio.sleep(0.5)
    assert ref.is_alive
    assert system.refs == [ref]
    ref.tell("hello")
    await asyncio.sleep(1)
    assert lives.notes == ["0 1 starts", "0 1 < boom", "0 1 stops boom", "1 2 starts", "1 2 < hello"]
    assert lives.objects[0] is not lives.objects[1]
    await system.stop()
    assert await system.failed is None
    assert system.failures == []


async def test_a_failed_task_is_replaced_after_its_end() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.task, name="a")
    ref.tell(boom)
    ref.tell("hello")
    await asyncio.sleep(2)
    assert lives.notes == ["0 1 starts", "0 1 < boom", "0.25 1 stops boom", "1.25 2 starts", "1.25 2 < hello"]
    await system.stop()
    assert await system.failed is None


async def test_the_delay_grows_until_it_is_given_up_and_all_is_stopped() -> None:
    decided: list[tuple[str, Decision]] = []
    system = System(supervisor=SOON, on_decision=lambda failure, what: decided.append((failure.actor, what)))
    lives = Lives(fails=["", "on_start", "on_start", "on_start"])
    other = system.spawn(Lives().task, name="other")
    system.spawn(lives.turns, name="a").tell(boom)
    failure = await system.failed
    assert [note for note in lives.notes if "starts" in note] == [
        "0 1 starts",
        "1 2 starts",
        "3 3 starts",
        "7 4 starts",
    ]
    assert decided == [("a", RestartIn(1.0)), ("a", RestartIn(2.0)), ("a", RestartIn(4.0)), ("a", Directive.STOP_ALL)]
    assert failure is not None
    assert (failure.actor, str(failure.error), failure.restarts) == ("a", "on_start 4", (6.0, 4.0, 0.0))
    assert not other.is_alive
    await system.stop()


async def test_a_life_that_lasts_makes_the_next_delay_short_again() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.turns, name="a")
    for pause in (10.0, 10.0, 200.0, 10.0):
        ref.tell(boom)
        await asyncio.sleep(pause)
    assert [note for note in lives.notes if "starts" in note] == [
        "0 1 starts",
        "1 2 starts",
        "12 3 starts",
        "24 4 starts",
        "221 5 starts",
    ]
    await system.stop()


async def test_an_actor_by_turns_loses_the_message_that_failed_and_no_other() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.turns, name="a")
    for message in (1, boom, 2, 3):
        ref.tell(message)
    await asyncio.sleep(0.5)
    ref.tell(4)
    assert ref.waiting == 3
    await asyncio.sleep(1)
    assert [note for note in lives.notes if "<" in note] == ["0 1 < 1", "0 1 < boom", "1 2 < 2", "1 2 < 3", "1 2 < 4"]
    assert [(letter.message, letter.loss) for letter in system.dead_letters.newest] == [(boom, Loss.FAILED)]
    await system.stop()


async def test_an_actor_that_takes_lists_loses_the_list_that_failed() -> None:
    """The framework cannot determine how far the turn had come."""
    seen: list[object] = []

    class Lists(Actor[object]):
        def on_messages(self, messages: list[object]) -> None:
            seen.append(list(messages))
            if boom in messages:
                boom()

    system = System(supervisor=SOON)
    ref = system.spawn(Lists, name="a")
    for message in (1, boom, 2):
        ref.tell(message)
    await asyncio.sleep(0)
    ref.tell(3)
    await asyncio.sleep(2)
    assert seen == [[1, boom, 2], [3]]
    assert [letter.message for letter in system.dead_letters.newest] == [1, boom, 2]
    await system.stop()


async def test_an_actor_with_a_task_loses_the_message_that_failed_and_not_one_that_is_done() -> None:
    class Ticking(AsyncActor[object]):
        async def run(self) -> None:
            while True:
                async with asyncio.timeout(1):
                    message = await self.receive()
                    if callable(message):
                        message()

    system = System(supervisor=SOON)
    ref = system.spawn(Ticking, name="a")
    ref.tell(boom)
    await asyncio.sleep(1.5)
    ref.tell("done")
    await asyncio.sleep(3)  # nothing comes within a second, so a TimeoutError is raised without a message in hand
    assert [(letter.message, letter.loss) for letter in system.dead_letters.newest] == [(boom, Loss.FAILED)]
    await system.stop()


async def test_messages_behind_the_failed_one_of_an_actor_that_stops_were_never_seen() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    actor = lives.turns()
    ref = system.spawn(actor, name="a")
    ref.tell(actor.stop)
    ref.tell(boom)
    behind: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None)
    ref.tell("behind")
    with pytest.raises(ClosedError):
        await behind
    assert "dropped" in lives.notes[-2]
    assert "'behind'" in lives.notes[-2]
    assert [letter.loss for letter in system.dead_letters.newest] == [Loss.FAILED, Loss.STOPPED, Loss.STOPPED]
    await system.stop()
    assert await system.failed is None


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_one_that_is_stopped_and_fails_in_on_stop_is_not_restarted(kind: str) -> None:
    decided: list[Decision] = []
    system = System(supervisor=SOON, on_decision=lambda failure, what: decided.append(what))
    lives = Lives(fails=["on_stop"])
    ref = system.spawn(getattr(lives, kind), name="a")
    await asyncio.sleep(0)
    ref.stop()
    assert await ref.ended is None
    await asyncio.sleep(20)
    assert decided == [Directive.STOP]
    assert len(lives.objects) == 1
    assert system.refs == []
    await system.stop()


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_asks_that_the_failed_life_had_taken_end_and_those_that_wait_are_answered(kind: str) -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(getattr(lives, kind), name="a")
    kept: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None)
    read: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None, changes=False)
    failed: asyncio.Future[int] = ref.ask(lambda reply: Question(reply, boom), timeout=None)
    behind: asyncio.Future[int] = ref.ask(lambda reply: Question(reply, lambda: reply.resolve(1)), timeout=None)
    with pytest.raises(OutcomeUnknownError, match="'a' has failed before it answered") as caught:
        await failed
    assert isinstance(caught.value.__cause__, UnavailableError)
    assert isinstance(caught.value.__cause__.__cause__, OSError)
    with pytest.raises(OutcomeUnknownError):
        await kept
    with pytest.raises(UnavailableError, match="'a' has failed") as plain:
        await read
    assert type(plain.value) is UnavailableError
    later: asyncio.Future[int] = ref.ask(lambda reply: Question(reply, lambda: reply.resolve(2)), timeout=None)
    late: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=0.5)
    with pytest.raises(OutcomeUnknownError, match="did not answer within"):
        await late
    assert not behind.done()
    assert await asyncio.gather(behind, later) == [1, 2]
    await system.stop()


async def test_on_stop_of_a_failed_life_may_answer_its_open_asks() -> None:
    class Polite(Actor[Question]):
        def on_message(self, message: Question) -> None:
            self.question = message
            boom()

        def on_stop(self, error: BaseException | None) -> None:
            self.question.reply.fail(UnavailableError("nothing was done"))

    system = System(supervisor=SOON)
    future: asyncio.Future[int] = system.spawn(Polite, name="a").ask(lambda reply: Question(reply), timeout=None)
    with pytest.raises(UnavailableError, match="nothing was done"):
        await future
    system.begin_stop()


async def test_timers_end_with_the_life_that_set_them() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.turns, name="a")
    lives.objects[0].schedule(0.5, "never")
    lives.objects[0].schedule(3.0, "never", every=1.0)
    ref.tell(boom)
    await asyncio.sleep(10)
    assert not any("never" in note for note in lives.notes)
    await system.stop()


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_late_actions_of_a_failed_object_have_no_effect_on_its_successor(kind: str) -> None:
    """It may have left a callback behind, which fires when its successor runs."""
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(getattr(lives, kind), name="a")
    ref.tell(boom)
    await asyncio.sleep(2)
    first, second = lives.objects
    assert first.is_stopping
    first.stop()
    assert not first.schedule(0.1, "never").is_pending
    with pytest.raises(ClosedError, match="'a/child' was not spawned"):
        first.spawn(lives.turns, name="child")
    await asyncio.sleep(1)
    assert not second.is_stopping
    assert ref.is_alive
    assert first.ref is second.ref
    await system.stop()


@pytest.mark.parametrize("where", ["factory", "on_start"])
@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_a_failed_restart_is_one_more_failure(kind: str, where: str) -> None:
    system = System(supervisor=SOON)
    lives = Lives(fails=["", where, where])
    ref = system.spawn(getattr(lives, kind), name="a")
    ref.tell(boom)
    ref.tell("hello")
    await asyncio.sleep(20)
    assert lives.notes[-1].endswith("4 < hello")
    assert system.failures == []
    await system.stop()


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_an_error_in_on_stop_of_a_failed_life_is_one_more_failure(kind: str) -> None:
    """It is not restarted twice because of that, and the supervisor gets both errors."""
    heard: list[str] = []

    class Listening:
        def decide(self, failure: Failure) -> Decision:
            heard.append(str(failure.error))
            return RestartIn(len(heard))

    system = System(supervisor=Listening())
    lives = Lives(fails=["on_stop"])
    ref = system.spawn(getattr(lives, kind), name="a")
    ref.tell(boom)
    ref.tell("hello")
    await asyncio.sleep(20)
    assert heard == ["boom", "on_stop 1"]
    assert [note.split()[0] for note in lives.notes if "2 starts" in note] == ["2" if kind == "turns" else "2.25"]
    assert len(lives.objects) == 2
    await system.stop()


async def test_an_error_in_on_stop_may_end_an_actor_that_was_to_be_restarted() -> None:
    class Strict:
        def decide(self, failure: Failure) -> Decision:
            return RestartIn(1.0) if isinstance(failure.error, OSError) else Directive.STOP

    system = System(supervisor=Strict())
    for kind in ("turns", "task"):
        lives = Lives(fails=["on_stop"])
        ref = system.spawn(getattr(lives, kind), name="a")
        ref.tell(boom)
        error = await ref.ended
        assert str(error) == "on_stop 1"
        assert len(lives.objects) == 1
    await asyncio.sleep(10)
    assert system.refs == []
    await system.stop()


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_an_actor_that_is_stopped_while_it_waits_for_its_restart_is_not_restarted(kind: str) -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(getattr(lives, kind), name="a")
    ref.tell(boom)
    await asyncio.sleep(0.5)
    ref.tell("waits")
    asked: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None)
    ref.stop()
    with pytest.raises(ClosedError):
        await asked
    assert await ref.ended is None
    await asyncio.sleep(10)
    assert len(lives.objects) == 1
    assert not any("dropped" in note for note in lives.notes)
    assert system.dead_letters.counts[Loss.STOPPED] == 2
    assert system.refs == []
    await system.stop()


async def test_an_actor_that_is_stopped_while_a_failed_life_still_ends_is_not_restarted() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.task, name="a")
    ref.tell(boom)
    await asyncio.sleep(0.1)
    ref.tell("waits")
    ref.stop()
    assert system.refs == [ref]
    assert await ref.ended is None
    assert lives.notes[-1] == "0.25 1 stops boom"
    await asyncio.sleep(10)
    assert len(lives.objects) == 1
    await system.stop()


async def test_a_system_that_stops_waits_for_no_restart() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    system.spawn(lives.turns, name="a").tell(boom)
    system.spawn(lives.task, name="b").tell(boom)
    await asyncio.sleep(0.5)
    await system.stop()
    await asyncio.sleep(10)
    assert len(lives.objects) == 2
    assert await system.failed is None


async def test_a_start_that_stops_everything_and_then_fails_is_an_end() -> None:
    class Hasty(Turns):
        def on_start(self) -> None:
            if self.number == 2:
                self.system.begin_stop()
                boom()

    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lambda: Hasty(lives), name="a")
    ref.tell(boom)
    asked: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None)
    with pytest.raises(ClosedError):
        await asked
    await system.stop()
    assert [str(failure.error) for failure in system.failures] == ["boom"]


@pytest.mark.parametrize("kind", ["turns", "task"])
async def test_a_factory_that_stops_everything_starts_nothing(kind: str) -> None:
    system = System(supervisor=SOON)
    lives = Lives()

    def make() -> Turns | Task:
        if lives.objects:
            system.begin_stop()
        made: Turns | Task = getattr(lives, kind)()
        return made

    ref = system.spawn(make, name="a")
    ref.tell(boom)
    await system.failed
    await system.stop()
    assert [note for note in lives.notes if " 2 " in note] == []


async def test_an_actor_that_was_spawned_without_a_factory_is_escalated() -> None:
    system = System(supervisor=SOON)
    lives = Lives()
    system.spawn(lives.turns(), name="a").tell(boom)
    failure = await system.failed
    assert failure is not None
    assert str(failure.error) == "boom"
    await system.stop()


async def test_an_actor_whose_task_is_cancelled_from_outside_is_not_restarted() -> None:
    """A restart would swallow the cancellation; a cancelled future that it awaits is an error like others."""
    system = System(supervisor=SOON)
    lives = Lives()
    ref = system.spawn(lives.task, name="a")
    future = asyncio.get_running_loop().create_future()
    future.cancel()

    async def look() -> None:
        await future

    ref.tell(look)
    await asyncio.sleep(2)
    assert len(lives.objects) == 2
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "actor a"]
    task.cancel()
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, asyncio.CancelledError)
    await system.stop()
    assert task.cancelled()
    assert len(lives.objects) == 2


async def test_the_directive_stop_ends_the_failed_actor_alone() -> None:
    system = System(supervisor=Directive.STOP)
    lives = Lives()
    other = system.spawn(lives.turns, name="other")
    for kind in ("turns", "task"):
        ref = system.spawn(getattr(lives, kind), name=kind)
        ended = ref.ended
        ref.tell(boom)
        asked: asyncio.Future[int] = ref.ask(lambda reply: Question(reply), timeout=None)
        assert isinstance(await ended, OSError)
        assert isinstance(await ref.ended, OSError)
        with pytest.raises(ClosedError):
            await asked
        assert lives.notes[-1].endswith("stops boom")
    assert system.refs == [other]
    await system.stop()
    assert await system.failed is None


async def test_a_supervisor_that_raises_stops_all() -> None:
    class Confused:
        def decide(self, failure: Failure) -> Decision:
            raise KeyError(failure.actor)

    system = System(supervisor=Confused())
    system.spawn(Lives().turns, name="a").tell(boom)
    failure = await system.failed
    assert failure is not None
    assert isinstance(failure.error, OSError)
    assert "KeyError('a')" in failure.error.__notes__[0]
    await system.stop()


@pytest.mark.parametrize("kind", ["turns", "task"])
def test_an_interrupt_stops_all_and_goes_on(kind: str) -> None:
    """Ctrl-C out of a handler must not lead to a restart."""
    lives = Lives()
    systems: list[System] = []

    class NeverAsked:
        def decide(self, failure: Failure) -> Decision:
            raise AssertionError(failure)

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        systems.append(System(supervisor=NeverAsked()))
        systems[0].spawn(getattr(lives, kind), name="a").tell(interrupt)
        await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt), asyncio.Runner() as runner:
        runner.get_loop().run_until_complete(main())
    assert systems[0].is_stopping
    assert not hasattr(systems[0].failures[0].error, "__notes__")


async def test_the_end_of_an_actor_can_be_waited_for_by_many_and_given_up_by_each() -> None:
    system = System(supervisor=SOON)
    ref = system.spawn(Lives().task, name="a")
    first, second = ref.ended, ref.ended
    first.cancel()
    ref.tell(boom)
    await asyncio.sleep(5)
    assert not second.done(), "a restart is no end"
    ref.stop()
    assert await second is None
    assert await ref.ended is None
    await system.stop()


def history(seed: int) -> list[str]:
    lives = Lives(fails=["", "on_start", "", "on_stop"])

    async def main() -> None:
        system = System(supervisor=SOON)
        ref = system.spawn(lives.turns, name="a")
        for number in range(3):
            ref.tell(number)
            ref.tell(boom)
            await asyncio.sleep(7.25)
        await system.stop()

    run(main(), seed=seed)
    return lives.notes


def test_the_same_run_gives_the_same_restarts_at_the_same_moments() -> None:
    notes = history(1)
    assert [note for note in notes if "starts" in note] == [
        "0 1 starts",
        "1 2 starts",
        "3 3 starts",
        "11.25 4 starts",
    ]
    assert history(2) == notes


def test_a_process_that_dies_restarts_nothing() -> None:
    lives = Lives()
    loop = SimulatedLoop(1)
    process = loop.process("n1")

    async def main() -> None:
        system = System(supervisor=SOON)
        ref = system.spawn(lives.turns, name="a")
        ref.tell(boom)
        await asyncio.sleep(2)
        for _ in range(3):
            loop.call_later(1, ref.tell, boom)
        await asyncio.sleep(2)

    process.spawn(main())
    loop.run_for(3.5)
    assert len(lives.objects) == 2
    process.kill()
    loop.run_for(100)
    assert len(lives.objects) == 2
    loop.close()
