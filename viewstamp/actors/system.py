"""The system: a set of actors that stop together, and the consequences of a failure."""

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
    """A set of actors with a supervisor, on the event loop that runs when the system is created.

    Example::

        system = System("shop")
        counter = system.spawn(Counter, name="counter")
        counter.tell(Add(1))
        await system.stop(grace=5.0)

    Invariants:
      * once ``is_stopping``, no actor is spawned or restarted and no turn begins
      * ``failures[0]`` is the result of ``failed``, and the error of ``on_stop`` if it caused the stop
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
        """Create an empty system.

        Args:
          name: for messages.
          supervisor: decides about the failures of actors that were spawned without a supervisor of their own.
          on_failed: called once, on the loop, with the first failure, after every actor has been stopped.
          on_decision: called by the loop with each failure that a supervisor decided about, and the decision; use it to
            log restarts.
          on_dead_letter: called by the loop for each lost message.
        """
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.is_stopping = False
        self.failures: list[Failure] = []
        """The failure that stopped everything, if one did, and all later ones; none that a supervisor handled."""
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
        """A future of the failure that stopped everything; None = a clean stop. Each access returns another future."""
        return asyncio.shield(self._failed)

    @property
    def refs(self) -> list[Ref[Any]]:
        """The living actors in order of spawning, including those that are being restarted."""
        return [cell.ref for cell in self._cells.values()]

    def spawn(
        self,
        actor: Spawnable[MessageT],
        *,
        name: str,
        supervisor: Supervisor | None = None,
        **bounds: Unpack[Bounds[MessageT]],
    ) -> Ref[MessageT]:
        """Spawn an actor and return its reference. Never awaits; an ``AsyncActor`` starts in its task.

        Args:
          actor: a factory of actors, such as a class, called now and for each restart; or an actor that has not
            been spawned before. The latter cannot be restarted: a decision to restart it is escalated.
          name: unique among the living actors; for errors, logs and status.
          supervisor: decides about its failures; None = the system's supervisor.
          **bounds: of its mailbox, see :class:`~viewstamp.actors.mailbox.Bounds`.

        Raises:
          ClosedError: the system is stopping; nothing was spawned.
          Others: the error of the factory or of ``Actor.on_start``; nothing was spawned and nothing stops.
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
        """Spawn an actor under ``parent``; None = directly under the system."""
        self._check_spawn(name)
        factory = None if isinstance(actor, Actor | AsyncActor) else actor
        first = actor if isinstance(actor, Actor | AsyncActor) else actor()
        self._check_spawn(name)  # Again, because the factory is foreign code and may have stopped the system.
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
            raise ClosedError(
                f"the system {self.name!r} is stopping, so {name!r} was not spawned", remedy="start a new system"
            )
        assert name not in self._cells, f"an actor named {name!r} lives already"

    def fail(self, error: BaseException) -> None:
        """Stop everything, because something that the actors depend on has failed outside of them."""
        failure = Failure("", error)
        if not self._note_late(failure):
            self.stop_all(failure)

    def begin_stop(self) -> None:
        """Stop every actor, the last spawned first, without waiting for tasks to end. Idempotent.

        An actor may call it to end the whole system.
        """
        self.stop_all(None)

    async def stop(self, *, grace: float = 0.0) -> None:
        """Stop every actor and wait until the last task has ended. Idempotent; ``failed`` reports a failure.

        If the call is cancelled, everything is stopped but some tasks may still be ending; ``stop`` can be awaited
        again. An actor that catches its cancellation delays the return, so set a deadline around the call.

        Args:
          grace: seconds for the actors to handle their waiting messages, see :meth:`Ref.finish`: one after the other,
            the last spawned first, and each before its children. Actors that have not ended by then are stopped.
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

    # -- Called by cells --------------------------------------------------------------------------------------------

    def decide(self, failure: Failure, cell: Cell[Any], *, may_restart: bool) -> Decision | None:
        """Return the decision about a failed actor; None if everything is stopping anyway."""
        if self._note_late(failure):
            return None
        decision: Decision = Directive.STOP_ALL
        if not isinstance(failure.error, INTERRUPTS):
            try:
                decision = cell.supervisor.decide(failure)
            except Exception as error:  # Handled like a failure, because otherwise replies would never be resolved.
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
        """Stop every actor, the last spawned first; ``failure`` is the cause, None for a clean stop. Idempotent."""
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
        """Remove the cell of an ended actor."""
        del self._cells[cell.name]
        self._maybe_stopped()

    def _live(self) -> list[Cell[Any]]:
        return list(self._cells.values())

    def _note_late(self, failure: Failure) -> bool:
        """Record a failure if everything is stopping already; return whether it is."""
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
            except Exception as error:  # It must not prevent the other actors from stopping, or ``stop`` from ending.
                self.loop.call_exception_handler(
                    {"message": f"the callback on_failed of the system {self.name!r} raised", "exception": error}
                )

    def _maybe_stopped(self) -> None:
        if not self._all_told or self._cells or self._stopped.done():
            return
        self._stopped.set_result(None)
        if not self._failed.done():
            self._failed.set_result(None)
