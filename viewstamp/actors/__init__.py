"""Actors on asyncio: owners of state that talk by messages and are woken once an iteration of the event loop.

In short::

    class Counter(Actor[Add | Total]):
        def on_message(self, message): ...       # or on_messages(self, messages): the whole mailbox at once
        def on_start(self): ...                  # synchronous, inside spawn() or at a restart
        def on_stop(self, error): ...            # synchronous, once; error is None at a clean stop
        def on_dropped(self, messages): ...      # before on_stop: what waited and will never be handled
        # in an actor: self.ref, self.system, self.schedule(seconds, message, every=0.0) -> Timer,
        #              self.spawn(Child, name="child") -> Ref, self.stop(), self.is_stopping

    class Link(AsyncActor[Frame]):               # one task; every hook but on_dropped is a coroutine
        async def on_message(self, message): ... # or run(): call `await self.receive()` as it likes

    system = System("shop", on_failed=callback, on_decision=log, on_dead_letter=log)   # on the running loop
    counter = system.spawn(Counter, name="counter", supervisor=Restart(), count_max=10_000, bytes_max=0,
                           measure=None, overflow=Overflow.REFUSE)                     # -> Ref
    counter.tell(message)                        # OverloadedError when full, ClosedError when stopped
    counter.maybe_tell(message)                  # the same, answering False instead of raising
    counter.put(message)                         # internal: never refused, a dead letter when stopped
    total: int = await counter.ask(lambda reply: Total(reply), timeout=5.0, changes=False)
    counter.stop()                               # this actor alone, an ordinary end; finish(): after what waits
    error = await counter.ended                  # None = an ordinary end
    failure = await system.failed                # Failure(actor, error) that stopped all; None = clean stop
    system.fail(error)                           # somebody outside found that the whole must stop
    system.begin_stop()                          # now, without waiting; await system.stop(grace=5.0) waits too
    system.dead_letters.counts, .newest          # what was lost, how often and how

A message that wants an answer has a field of type :class:`Reply`, which the actor answers at any time,
now or many turns later: ``message.reply.resolve(result)`` or ``message.reply.fail(error)``. (A type checker takes
the type of the answer from where it goes to, so annotate that, as above.)

What it promises
  * **Turns.** ``loop.call_soon`` wakes an actor at most once an iteration; the turn takes everything that waits and
    hands it over as one list, in the order in which it was told. Nothing is created per message: no task, no event,
    no envelope. A turn is whole: nothing else runs inside it and a stop or a restart waits for its end.
  * **Bounds.** A mailbox holds ``count_max`` messages, and ``bytes_max`` bytes where ``measure`` says how large a
    message is (one message over that limit still passes through an empty mailbox: a later try could do no better).
    What is told over that is refused at once, or with ``overflow`` dropped: itself, or the oldest ones that were
    told. ``put`` is for what the actor caused itself (a durable notice, a timer, a reply to its own request): its
    number is bounded by its cause and losing it would lose state, so it is never refused and never dropped; it
    counts, so that a flood of it shuts out ``tell``.
  * **Replies.** A future returned by ``ask`` is always resolved, by exactly one of: the result; the error that the
    actor answered; ``OverloadedError``; ``ClosedError``; the deadline's or the failure's error. "Did it happen?" is
    never guessed: ``ClosedError`` and ``OverloadedError`` come only where the message never reached the actor or was
    said to change nothing. One that reached it and was not answered, by a stop, a failure or the deadline, ends in
    ``OutcomeUnknownError``, and with ``changes=False`` in ``ClosedError`` (a stop) or ``UnavailableError``.
  * **Supervision.** For each failure (an exception that leaves a handler) a supervisor decides, at once, within the
    same callback:

    ============= ======================================================================================================
    ``RestartIn`` a fresh actor from the factory takes the place, after a delay. :class:`Restart` doubles it each time
                  and escalates after so many restarts in a window
    ``STOP``      this actor ends, with its children
    ``ESCALATE``  it is a failure of the parent, about which the parent's supervisor decides; without one, STOP_ALL
    ``STOP_ALL``  every actor of the system is stopped: no other turn runs after the failed one. The default
    ============= ======================================================================================================

    An actor's supervisor is that of its parent, or the system's, unless ``spawn`` is given one. An interrupt
    (KeyboardInterrupt, SystemExit) is STOP_ALL without asking. What cannot be restarted is escalated: an actor spawned
    without a factory; one whose task somebody cancelled, which a restart would swallow. A failure of ``on_stop`` is
    one more failure; one that is stopping ends in any case.
  * **Restart.** ``Ref`` and mailbox stay, and what waits in it, with its open asks, waits for the next life. Lost is
    what was in hand: the message that failed, or the whole list where ``on_messages`` is overridden: dead letters,
    since part of it may have been carried out. Asks that the failed life had taken end as said above. Its timers are
    cancelled, its children stopped; ``on_stop`` hears the error, and the factory is called once the delay is over and
    the last child has ended. What the old object still asks for, from a callback that it left behind, has no effect.
    An error of the factory or of ``on_start`` is one more failure. A stop ends the waiting for a restart.
  * **Children** (``Actor.spawn``) stop with their parent, in reverse order and before its ``on_stop``; the end of an
    actor is told by ``Ref.ended`` when theirs is over.
  * **Stop-all.** The failure that stopped everything is told once, in ``System.failed`` and ``on_failed``; those that
    follow from stopping stand behind it in ``System.failures``.
  * **Stopping.** Actors stop in reverse order of spawning. The mailbox closes, timers are cancelled, ``on_dropped``
    hears what waited, ``on_stop`` runs once, replies are resolved. ``System.stop()`` returns when every task has
    ended; with ``grace`` actors first finish what waits.
  * **Dead letters.** What no actor will handle, and no sender still has, is counted by its cause, and the newest are
    kept (:class:`DeadLetters`). A message told to a stopped actor counts although its sender hears of it.
  * **Cancellation** is never swallowed. A cancelled ``AsyncActor`` ends cancelled; where nobody stopped it, that is a
    failure like any other. Cancelling ``System.stop()`` leaves everything stopped and can be awaited again.

What it assumes
  * One event loop, one thread: everything here is called on the loop (from elsewhere: ``call_soon_threadsafe``).
  * Only ``call_soon``, ``call_later``, ``call_at``, ``create_future``, ``create_task`` and ``time`` of the running
    loop are used, so the same actors run on simulated time. Nothing iterates over a set: the same inputs give the
    same turns.
  * A turn is short; what may wait belongs in an ``AsyncActor`` or behind an executor of ``host``.
  * The actor answers every ``Reply``, or the asker set a deadline.

Invariants
  * a mailbox is scheduled exactly while messages wait in it and its actor lives and has not taken them
  * ``taken <= accepted`` of a mailbox, and what lies between them is what waits
  * after ``on_stop`` an object has no timer, no child and no open reply, and is given no message

The modules
  * ``actor``: the base classes that a program derives from. ``ref``: what others hold of an actor. ``reply``: the half
    of an ask that travels inside the message. ``timer``: messages that an actor schedules for itself.
  * ``mailbox``: the bounded queue of messages. ``dead_letters``: messages that no actor will handle.
  * ``cell``: what the framework keeps for one actor through all its lives; ``turn_cell`` for an :class:`Actor`,
    ``task_cell`` for an :class:`AsyncActor`.
  * ``system``: the actors that live and die together. ``supervisor``: the decision about a failure.

What it lacks on purpose
  * Remote references. Replicated actors are ``replicated``, a package of its own beside this framework.
  * Jitter in the back-off: randomness belongs to the host. A :class:`Supervisor` of one's own may add it.
  * Logging: whoever holds the ``System`` is told of failures, decisions and dead letters, and logs them there.
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
