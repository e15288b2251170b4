"""Actors on asyncio: owners of state that talk by messages and are woken once an iteration of the event loop.

In short::

    class Counter(Actor[Add | Total]):
        def on_message(self, message): ...       # or on_messages(self, messages): the whole mailbox at once
        def on_start(self): ...                  # synchronous, inside spawn()
        def on_stop(self, error): ...            # synchronous, once; error is None at a clean stop
        def on_dropped(self, messages): ...      # before on_stop: what waited and will never be handled
        # in an actor: self.ref, self.system, self.schedule(seconds, message) -> Timer, self.stop(), self.is_stopping

    class Link(AsyncActor[Frame]):               # one task; every hook is a coroutine
        async def on_message(self, message): ... # or run(): call `await self.receive()` as it likes

    system = System("node", on_failed=callback)  # on the running loop
    counter = system.spawn(Counter(), name="counter", count_max=10_000, bytes_max=0, measure=None)   # -> Ref
    counter.tell(message)                        # OverloadedError when full, ClosedError when stopped
    counter.maybe_tell(message)                  # the same, answering False instead of raising
    counter.put(message)                         # internal: never refused, dropped when stopped
    total: int = await counter.ask(lambda reply: Total(reply), timeout=5.0, changes=False)
    counter.stop()                               # this actor alone, an ordinary end
    failure = await system.failed                # Failure(actor, error) of the first failed part; None = clean stop
    system.fail(error)                           # somebody outside found that the whole must stop
    system.begin_stop()                          # now, without waiting; await system.stop() waits too

A message that wants an answer has a field of type :class:`Reply`, which the actor answers at any time,
now or many turns later: ``message.reply.resolve(result)`` or ``message.reply.fail(error)``. (A type checker takes
the type of the answer from where it goes to, so annotate that, as above.)

What it promises
  * **Turns.** ``loop.call_soon`` wakes an actor at most once an iteration; the turn takes everything that waits
    and hands it over as one list, in the order in which it was told. Nothing is created per message: no task, no
    event, no envelope. A turn is whole: nothing else runs inside it and a stop waits for its end.
  * **Bounds.** A mailbox holds ``count_max`` messages, and ``bytes_max`` bytes where ``measure`` says how large
    a message is (one message over that limit still passes through an empty mailbox: a later try could do no
    better). ``tell`` refuses what is over, at once. ``put`` is for what the actor caused itself (a durable notice, a
    timer, a reply to its own request): its number is bounded by its cause and losing it would lose state, so it is
    never refused; it counts, so that a flood of it shuts out ``tell``.
  * **Replies.** A future returned by ``ask`` is always resolved, by exactly one of: the result; the error that the
    actor answered; ``OverloadedError``; ``ClosedError``; the deadline's error. "Did it happen?" is never guessed:
    ``ClosedError`` comes only where the message never reached the actor or was said to change nothing. One that
    reached it and was not answered, by a stop or by the deadline, ends in ``OutcomeUnknownError``, and with
    ``changes=False`` in ``ClosedError`` and ``UnavailableError``.
  * **Stop-all.** An exception that leaves a handler stops every actor of the system within the same callback: no
    other turn runs after a failed one. The first failure is the cause and is told once, in ``System.failed`` and
    ``on_failed``; those that follow from stopping stand behind it in ``System.failures``.
  * **Stopping.** Actors stop in reverse order of spawning. The mailbox closes, timers are cancelled, ``on_dropped``
    hears what waited, ``on_stop`` runs once, replies are resolved. ``System.stop()`` returns when every task has ended.
  * **Cancellation** is never swallowed. A cancelled ``AsyncActor`` ends cancelled; where nobody stopped it, that is
    a failure like any other. Cancelling ``System.stop()`` leaves everything stopped and can be awaited again.

What it assumes
  * One event loop, one thread: everything here is called on the loop (from elsewhere: ``call_soon_threadsafe``).
  * Only ``call_soon``, ``call_later``, ``create_future``, ``create_task`` and ``time`` of the running loop are used, so
    the same actors run on simulated time. Nothing iterates over a set: the same inputs give the same turns.
  * A turn is short; what may wait belongs in an ``AsyncActor`` or behind a lane of ``host``.
  * The actor answers every ``Reply``, or the asker set a deadline.

Invariants
  * a mailbox is scheduled exactly while messages wait in it and its actor has not taken them
  * ``taken <= accepted`` of a mailbox, and what lies between them is what waits
  * after ``on_stop`` an actor has no timer and no open reply, and is given no message

What it lacks on purpose
  * Restart, back-off and escalation: ``Supervisor.decide`` is the seam; today there is one directive, STOP_ALL.
  * Remote references, and replicated actors (they will be delivered to by ``node/``, see the design).
  * Logging: whoever holds the ``System`` handles the failure, and logs it there.
"""

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.cell import Timer
from viewstamp.actors.ref import Ref
from viewstamp.actors.reply import Reply
from viewstamp.actors.supervisor import Directive, Failure, StopAll, Supervisor
from viewstamp.actors.system import System

__all__ = ["Actor", "AsyncActor", "Directive", "Failure", "Ref", "Reply", "StopAll", "Supervisor", "System", "Timer"]
