"""The system: the actors that live and die together, and what follows from a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, Unpack

from viewstamp.actors.actor import Actor, AsyncActor, Spawnable
from viewstamp.actors.cell import FAILURES, INTERRUPTS, Cell
from viewstamp.actors.dead_letters import DeadLetter, DeadLetters
from viewstamp.actors.mailbox import Bounds
from viewstamp.actors.ref import Ref
from viewstamp.actors.supervisor import Decision, Directive, Failure, RestartIn, Supervisor
from viewstamp.actors.task_cell import TaskCell
from viewstamp.actors.turn_cell import TurnCell
from viewstamp.errors import ClosedError

__all__ = ["System"]

MessageT = TypeVar("MessageT")

DEAD_LETTERS_KEPT = 100


class System:
    """Actors under one supervisor, on the event loop that runs when it is made.

    Invariants:
      * once ``is_stopping``, no actor is spawned or restarted and no turn begins
      * ``failures[0]`` is what ``failed`` tells, and the error that ``on_stop`` heard where it caused the stop
    """

    def __init__(
        self,
        name: str = "actors",
        *,
        supervisor: Supervisor = Directive.STOP_ALL,
        on_failed: Callable[[Failure], None] | None = None,
        on_decision: Callable[[Failure, Decision], None] | None = None,
        on_dead_letter: Callable[[DeadLetter], None] | None = None,
    ) -> None:
        """Make an empty system.

        Args:
          name: for people.
          supervisor: who decides about actors that were spawned without one of their own.
          on_failed: called once, on the loop, with the first failure, after every actor was told to stop.
          on_decision: called by the loop for each failure that a supervisor decided about, with what is done
            about it: the place to log restarts.
          on_dead_letter: called by the loop for each message that is lost.
        """
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.is_stopping = False
        self.failures: list[Failure] = []
        """What stopped everything, if a failure did, and what failed since; not what a supervisor dealt with."""
        self.dead_letters = DeadLetters(DEAD_LETTERS_KEPT, on_dead_letter)
        self._all_told = False
        self._supervisor = supervisor
        self._on_failed = on_failed
        self._on_decision = on_decision
        self._cells: dict[str, Cell[Any]] = {}
        self._failed: asyncio.Future[Failure | None] = self.loop.create_future()
        self._stopped: asyncio.Future[None] = self.loop.create_future()

    def __repr__(self) -> str:
        return f"<System {self.name} {len(self._cells)} actors{' stopping' if self.is_stopping else ''}>"

    @property
    def failed(self) -> asyncio.Future[Failure | None]:
        """A future of the failure that stopped all, or None after a clean stop. Each access gives one to cancel."""
        return asyncio.shield(self._failed)

    @property
    def refs(self) -> list[Ref[Any]]:
        """The live actors, in order of spawning; one that is being restarted lives."""
        return [cell.ref for cell in self._cells.values()]

    def spawn(
        self,
        actor: Spawnable[MessageT],
        *,
        name: str,
        supervisor: Supervisor | None = None,
        **bounds: Unpack[Bounds[MessageT]],
    ) -> Ref[MessageT]:
        """Give life to an actor. Never awaits; an ``AsyncActor`` starts in its task.

        Args:
          actor: a factory of actors, such as a class, called now and for each restart; or an actor that has not
            been spawned before. That one cannot be restarted: where its supervisor says so, it escalates.
          name: unique among the live ones; for errors, logs and status.
          supervisor: who decides when it fails; None = the system's.
          **bounds: of its mailbox, see :class:`~viewstamp.actors.mailbox.Bounds`.

        Raises:
          ClosedError: the system is stopping.
          anything: what the factory or ``Actor.on_start`` raised; nothing was spawned and nothing stops.
        """
        return self.spawn_under(None, actor, name, self._supervisor if supervisor is None else supervisor, bounds)

    def spawn_under(
        self,
        parent: Cell[Any] | None,
        actor: Spawnable[MessageT],
        name: str,
        supervisor: Supervisor,
        bounds: Bounds[MessageT],
    ) -> Ref[MessageT]:
        """Give life to an actor and to its cell; ``parent`` is None for one of the system's own."""
        self._check_spawn(name)
        factory = None if isinstance(actor, Actor | AsyncActor) else actor
        first = actor if isinstance(actor, Actor | AsyncActor) else actor()
        self._check_spawn(name)  # the factory is somebody else's code: it may have stopped everything
        kind = TurnCell if isinstance(first, Actor) else TaskCell
        cell: Cell[MessageT] = kind(self, name, parent=parent, supervisor=supervisor, factory=factory, **bounds)
        self._cells[name] = cell
        if parent is not None:
            parent.children[cell] = None
        try:
            cell.begin(first)
        except FAILURES as error:
            cell.stop(error)
            raise
        return cell.ref

    def _check_spawn(self, name: str) -> None:
        if self.is_stopping:
            raise ClosedError(f"the system {self.name!r} is stopping: {name!r} was not spawned")
        assert name not in self._cells, f"an actor named {name!r} lives already"

    def fail(self, error: BaseException) -> None:
        """Stop everything: something outside the actors has failed which they cannot do without."""
        failure = Failure("", error)
        if not self._note_late(failure):
            self.stop_all(failure)

    def begin_stop(self) -> None:
        """Stop every actor, the last spawned first, without waiting for tasks to end. Idempotent.

        Also what an actor calls that wants the whole system to end.
        """
        self.stop_all(None)

    async def stop(self, *, grace: float = 0.0) -> None:
        """Stop every actor and wait until the last task has ended. Idempotent; a failure is told by ``failed``.

        Cancelled, it has stopped everything and has not waited for all; it may be awaited again. An
        actor that does not let itself be cancelled makes it wait: the deadline is the caller's.

        Args:
          grace: seconds for which the actors may finish what waits for them, see :meth:`Ref.finish`: one after the
            other, the last spawned first, and each before its children. What has not ended by then is stopped.
        """
        assert all(
            not isinstance(cell, TaskCell) or cell.task is not asyncio.current_task() for cell in self._live()
        ), "an actor cannot wait for its own end: call begin_stop()"
        try:
            if grace > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        for cell in reversed(self._live()):
                            if cell.parent is None:
                                cell.finish()
                                await cell.ended
        finally:
            self.begin_stop()
        await asyncio.shield(self._stopped)

    # -- What cells call --------------------------------------------------------------------------------------

    def decide(self, failure: Failure, cell: Cell[Any], *, may_restart: bool) -> Decision | None:
        """Return what is to be done about a failed actor, None where everything stops anyway."""
        if self._note_late(failure):
            return None
        decision: Decision = Directive.STOP_ALL
        if not isinstance(failure.error, INTERRUPTS):
            try:
                decision = cell.supervisor.decide(failure)
            except Exception as error:  # the failure is dealt with all the same, or replies would be left hanging
                failure.error.add_note(f"Everything stops, because the supervisor could not decide: {error!r}")
        if isinstance(decision, RestartIn) and cell.mailbox.is_closed:
            decision = Directive.STOP
        elif isinstance(decision, RestartIn) and not may_restart:
            decision = Directive.ESCALATE
        if decision is Directive.ESCALATE and cell.parent is None:
            decision = Directive.STOP_ALL
        if self._on_decision is not None:
            self.loop.call_soon(self._on_decision, failure, decision)
        return decision

    def stop_all(self, failure: Failure | None) -> None:
        """Stop every actor, the last spawned first; ``failure`` is why, None for a clean stop. Idempotent."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if failure is not None:
            self.failures.append(failure)
        for cell in reversed(self._live()):
            cell.stop(None if failure is None else failure.error)
        self._all_told = True
        if self.failures:
            self._tell_failure()
        self._maybe_stopped()

    def forget(self, cell: Cell[Any]) -> None:
        """Hear from a cell that its actor's life is over."""
        del self._cells[cell.name]
        self._maybe_stopped()

    def _live(self) -> list[Cell[Any]]:
        return list(self._cells.values())

    def _note_late(self, failure: Failure) -> bool:
        """Take note of a failure if everything stops already; return whether it does."""
        if self.is_stopping:
            self.failures.append(failure)
            if self._all_told:
                self._tell_failure()
        return self.is_stopping

    def _tell_failure(self) -> None:
        if self._failed.done():
            return
        self._failed.set_result(self.failures[0])
        if self._on_failed is not None:
            try:
                self._on_failed(self.failures[0])
            except Exception as error:  # It must not keep the other actors from stopping, nor ``stop`` from returning.
                self.loop.call_exception_handler(
                    {"message": f"on_failed of the system {self.name!r} has failed", "exception": error}
                )

    def _maybe_stopped(self) -> None:
        if not self._all_told or self._cells or self._stopped.done():
            return
        self._stopped.set_result(None)
        if not self._failed.done():
            self._failed.set_result(None)
