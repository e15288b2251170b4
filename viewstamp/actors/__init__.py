"""Actors on asyncio: objects that own their state, exchange messages, and run at most once an iteration of the loop.

In short::

    class Counter(Actor[Add | Total]):
        def on_message(self, message): ...       # or on_messages(self, messages): all waiting messages at once
        def on_start(self): ...                  # synchronous, inside spawn() or at a restart
        def on_stop(self, error): ...            # synchronous, once; error is None at a clean stop
        def on_dropped(self, messages): ...      # before on_stop: the waiting messages that will not be handled
        # in an actor: self.ref, self.system, self.schedule(seconds, message, every=0.0) -> Timer,
        #              self.spawn(Child, name="child") -> Ref, self.stop(), self.is_stopping

    class Link(AsyncActor[Frame]):               # one task; every hook but on_dropped is a coroutine
        async def on_message(self, message): ... # or run(): calls `await self.receive()` itself

    system = System("shop", on_failed=callback, on_decision=log, on_dead_letter=log)   # on the running loop
    counter = system.spawn(Counter, name="counter", supervisor=Restart(), count_max=10_000, bytes_max=0,
                           measure=None, overflow=Overflow.REFUSE)                     # -> Ref
    counter.tell(message)                        # OverloadedError when full, ClosedError when stopped
    counter.maybe_tell(message)                  # the same, but returns False instead of raising
    counter.put(message)                         # internal: never refused; a dead letter if the actor has stopped
    total: int = await counter.ask(lambda reply: Total(reply), timeout=5.0, changes=False)
    counter.stop()                               # stops this actor only; finish(): after the waiting messages
    error = await counter.ended                  # None = an ordinary end
    failure = await system.failed                # the Failure(actor, error) that stopped everything; None = clean stop
    system.fail(error)                           # a failure outside the actors: stop everything
    system.begin_stop()                          # stops without waiting; await system.stop(grace=5.0) waits
    system.dead_letters.counts, .newest          # lost messages, by cause

A message that expects an answer has a field of type :class:`Reply`, which the actor answers at any time, now or many
turns later: ``message.reply.resolve(result)`` or ``message.reply.fail(error)``. A type checker takes the type of the
answer from the annotation of the variable that receives it, as in the example.

Promises
  * **Turns.** ``loop.call_soon`` runs an actor at most once an iteration. A turn takes all waiting messages as one
    list, in the order in which they were sent. Nothing is created per message: no task, no event, no envelope. A turn
    is never interrupted: a stop or a restart takes effect after it.
  * **Bounds.** A mailbox holds ``count_max`` messages, and ``bytes_max`` bytes if ``measure`` gives the size of a
    message. (A single message over that limit is accepted by an empty mailbox, because it would never fit better.)
    ``tell`` to a full mailbox is refused at once, or, depending on ``overflow``, drops that message or the oldest ones.
    ``put`` is for messages that the actor caused itself: a durable notice, a timer, a reply to its own request. Their
    number is bounded by their cause, and losing one would lose state, so they are never refused and never dropped.
    They count towards the bound of ``tell``.
  * **Replies.** A future returned by ``ask`` is always resolved, by exactly one of: the result; the error that the
    actor answered; ``OverloadedError``; ``ClosedError``; the error of the deadline or the failure. ``ClosedError`` and
    ``OverloadedError`` mean that the message never reached the actor, or that it changes nothing (``changes=False``).
    A message that reached the actor and was not answered, because of a stop, a failure or the deadline, ends with
    ``OutcomeUnknownError``; with ``changes=False``, with ``ClosedError`` (a stop) or ``UnavailableError``.
  * **Supervision.** For each failure (an exception that leaves a handler) a supervisor decides at once, within the
    same callback:

    ============= ======================================================================================================
    ``RestartIn`` a new actor from the factory takes the place, after a delay. :class:`Restart` doubles the delay each
                  time, and escalates after ``restarts_max`` restarts within ``window`` seconds
    ``STOP``      this actor ends, with its children
    ``ESCALATE``  it counts as a failure of the parent: the parent's supervisor decides; without a parent, STOP_ALL
    ``STOP_ALL``  every actor of the system is stopped: no other turn runs after the failed one. The default
    ============= ======================================================================================================

    An actor's supervisor is that of its parent, or the system's, unless ``spawn`` is given one. An interrupt
    (KeyboardInterrupt, SystemExit) is always STOP_ALL. Two kinds of actor cannot be restarted, and escalate instead: an
    actor spawned without a factory, and one whose task was cancelled from outside, because a restart would swallow the
    cancellation. A failure of ``on_stop`` is one more failure; an actor that is stopping ends in any case.
  * **Restart.** ``Ref`` and mailbox stay, and waiting messages and open asks are handled after the restart. The
    messages in hand are lost as dead letters, because part of their work may have been done: the one message that
    failed, or the whole list if ``on_messages`` is overridden. Their asks end as described above. Timers are cancelled,
    children stopped, and ``on_stop`` gets the error. The factory is called when the delay is over and the last child
    has ended. Calls that callbacks of the old object make afterwards have no effect. An error of the factory or of
    ``on_start`` is one more failure. A stop ends the waiting for a restart.
  * **Children** (``Actor.spawn``) stop with their parent, in reverse order and before its ``on_stop``. ``Ref.ended`` of
    an actor is resolved after those of its children.
  * **Stop-all.** The failure that stopped everything is reported once, by ``System.failed`` and ``on_failed``; failures
    that follow from stopping come after it in ``System.failures``.
  * **Stopping.** Actors stop in reverse order of spawning. The mailbox closes, timers are cancelled, ``on_dropped``
    gets the waiting messages, ``on_stop`` runs once, replies are resolved. ``System.stop()`` returns when every task
    has ended; with ``grace``, actors first handle their waiting messages.
  * **Dead letters.** Messages that no actor will handle and no sender still has are counted by cause, and the newest
    are kept (:class:`DeadLetters`). A message sent to a stopped actor counts, although its sender gets an error.
  * **Cancellation** is never swallowed. A cancelled ``AsyncActor`` ends cancelled; if the system did not stop it, that
    is a failure like any other. Cancelling ``System.stop()`` leaves everything stopped, and ``stop`` can be awaited
    again.

Assumptions
  * One event loop, one thread: everything here is called on the loop (from elsewhere: ``call_soon_threadsafe``).
  * Only ``call_soon``, ``call_later``, ``call_at``, ``create_future``, ``create_task`` and ``time`` of the running
    loop are used, so the same actors run on simulated time. Nothing iterates over a set, so the same inputs give the
    same turns.
  * A turn is short; work that may wait belongs in an ``AsyncActor`` or behind an executor of ``host``.
  * The actor answers every ``Reply``, or the asker set a deadline.

Invariants
  * a mailbox is scheduled exactly while messages wait in it and its actor lives and has not taken them
  * ``taken <= accepted`` of a mailbox; the messages between the two are the waiting ones
  * after ``on_stop`` an object has no timer, no child and no open reply, and is given no message

The modules
  * ``actor``: the base classes that a program derives from. ``ref``: the reference to an actor. ``reply``: the half of
    an ask that travels inside the message. ``timer``: messages that an actor schedules for itself.
  * ``mailbox``: the bounded queue of messages. ``dead_letters``: messages that no actor will handle.
  * ``cell``: the framework's state of one actor through all its restarts; ``turn_cell`` for an :class:`Actor`,
    ``task_cell`` for an :class:`AsyncActor`.
  * ``system``: a set of actors that stop together. ``supervisor``: the decision about a failure.

Deliberate omissions
  * Remote references. Replicated actors are ``replicated``, a package of its own beside this framework.
  * Jitter in the back-off, because randomness belongs to the host. Your own :class:`Supervisor` may add it.
  * Logging: the owner of the ``System`` gets failures, decisions and dead letters, and logs them.
"""

from viewstamp.actors.actor import Actor, AsyncActor
from viewstamp.actors.dead_letters import DeadLetter, DeadLetters, Loss
from viewstamp.actors.mailbox import Overflow
from viewstamp.actors.ref import Ref
from viewstamp.actors.reply import Reply
from viewstamp.actors.supervisor import Decision, Directive, Failure, Restart, RestartIn, Supervisor
from viewstamp.actors.system import System
from viewstamp.actors.timer import Timer

__all__ = [
    "Actor",
    "AsyncActor",
    "DeadLetter",
    "DeadLetters",
    "Decision",
    "Directive",
    "Failure",
    "Loss",
    "Overflow",
    "Ref",
    "Reply",
    "Restart",
    "RestartIn",
    "Supervisor",
    "System",
    "Timer",
]
