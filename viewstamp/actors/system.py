"""The system: the actors that live and die together, and the supervisor that decides when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.cell import Cell, TaskCell, TurnCell
from viewstamp.actors.mailbox import COUNT_MAX
from viewstamp.actors.ref import Ref
from viewstamp.actors.supervisor import Directive, Failure, StopAll, Supervisor
from viewstamp.errors import ClosedError

__all__ = ["System"]

MessageT = TypeVar("MessageT")


class System:
    """Actors under one supervisor, on the event loop that runs when it is made.

    Invariants:
      * once ``is_stopping``, no actor is spawned and no turn begins
      * ``failures[0]`` is what ``failed`` tells, and the error that ``on_stop`` heard where it caused the stop
    """

    def __init__(
        self,
        name: str = "actors",
        *,
        supervisor: Supervisor | None = None,
        on_failed: Callable[[Failure], None] | None = None,
    ) -> None:
        """Make an empty system.

        Args:
          name: for people.
          supervisor: the policy; None = :class:`StopAll`.
          on_failed: called once, on the loop, with the first failure, after every actor was told to stop.
        """
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.is_stopping = False
        self.failures: list[Failure] = []
        self._all_told = False
        self._supervisor: Supervisor = StopAll() if supervisor is None else supervisor
        self._on_failed = on_failed
        self._cells: dict[str, Cell[Any]] = {}
        self._failed: asyncio.Future[Failure | None] = self.loop.create_future()
        self._stopped: asyncio.Future[None] = self.loop.create_future()

    def __repr__(self) -> str:
        return f"<System {self.name} {len(self._cells)} actors{' stopping' if self.is_stopping else ''}>"

    @property
    def failed(self) -> asyncio.Future[Failure | None]:
        """A future of the first failure, or None after a clean stop. Each access gives one that is safe to cancel."""
        return asyncio.shield(self._failed)

    @property
    def refs(self) -> list[Ref[Any]]:
        """The live actors, in order of spawning."""
        return [cell.ref for cell in self._cells.values()]

    def spawn(
        self,
        actor: Actor[MessageT] | AsyncActor[MessageT],
        *,
        name: str,
        count_max: int = COUNT_MAX,
        bytes_max: int = 0,
        measure: Callable[[MessageT], int] | None = None,
    ) -> Ref[MessageT]:
        """Give life to an actor. Never awaits; an ``AsyncActor`` starts in its task.

        Args:
          actor: an instance that has not been spawned before.
          name: unique among the live ones; for errors, logs and status.
          count_max: see :class:`~viewstamp.actors.mailbox.Mailbox`, also for the next two.
          bytes_max: the bound in bytes; 0 = none.
          measure: how many bytes a message counts for.

        Raises:
          ClosedError: the system is stopping.
          anything: what ``Actor.on_start`` raised; nothing was spawned and nothing stops.
        """
        if self.is_stopping:
            raise ClosedError(f"the system {self.name!r} is stopping: {name!r} was not spawned")
        assert actor._cell is None, f"{actor!r} has been spawned before, as {actor._cell.name!r}"
        assert name not in self._cells, f"an actor named {name!r} lives already"
        cell: Cell[MessageT]
        if isinstance(actor, Actor):
            cell = TurnCell(self, name, actor, count_max=count_max, bytes_max=bytes_max, measure=measure)
        else:
            cell = TaskCell(self, name, actor, count_max=count_max, bytes_max=bytes_max, measure=measure)
        self._cells[name] = cell
        cell.start()
        return cell.ref

    def fail(self, error: BaseException) -> None:
        """Report that something outside the actors has failed which they cannot do without."""
        self.on_failure("", error)

    def begin_stop(self) -> None:
        """Stop every actor, the last spawned first, without waiting for tasks to end. Idempotent.

        Also what an actor calls that wants the whole system to end.
        """
        self._stop_all(None)

    async def stop(self) -> None:
        """Stop every actor and wait until the last task has ended. Idempotent; a failure is told by ``failed``.

        Cancelled, it has stopped everything and has not waited for all; it may be awaited again. An
        actor that does not let itself be cancelled makes it wait: the deadline is the caller's.
        """
        assert all(
            not isinstance(cell, TaskCell) or cell.task is not asyncio.current_task() for cell in self._live()
        ), "an actor cannot wait for its own end: call begin_stop()"
        self.begin_stop()
        await asyncio.shield(self._stopped)

    def on_failure(self, actor: str, error: BaseException) -> None:
        """Hear from a cell, or from ``fail``, what went wrong."""
        failure = Failure(actor, error)
        self.failures.append(failure)
        if not self.is_stopping:
            directive = self._supervisor.decide(failure)
            match directive:
                case Directive.STOP_ALL:
                    self._stop_all(failure)
                case _:
                    assert_never(directive)
        elif self._all_told:
            self._tell_failure()

    def forget(self, cell: Cell[Any]) -> None:
        """Hear from a cell that its actor's life is over."""
        if self._cells.get(cell.name) is cell:
            del self._cells[cell.name]
        self._maybe_stopped()

    def _live(self) -> list[Cell[Any]]:
        return list(self._cells.values())

    def _stop_all(self, failure: Failure | None) -> None:
        if self.is_stopping:
            return
        self.is_stopping = True
        for cell in reversed(self._live()):
            cell.stop(None if failure is None else failure.error)
        self._all_told = True
        if self.failures:
            self._tell_failure()
        self._maybe_stopped()

    def _tell_failure(self) -> None:
        if self._failed.done():
            return
        self._failed.set_result(self.failures[0])
        if self._on_failed is not None:
            self._on_failed(self.failures[0])

    def _maybe_stopped(self) -> None:
        if not self._all_told or self._cells or self._stopped.done():
            return
        self._stopped.set_result(None)
        if not self._failed.done():
            self._failed.set_result(None)
