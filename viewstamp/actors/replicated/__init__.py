"""Replicated actors: plain classes whose instances live on every member and follow one log.

In short::

    class Inventory(ReplicatedActor):
        version = 1                              # of the class; its commands carry it
        def __init__(self) -> None:              # no arguments; at the first command of a name and key
            self.stock: dict[str, int] = {}
        @command
        def reserve(self, sku: str, n: int) -> bool: ...    # self.now, self.random, self.new_id(), self.key
        @query
        def available(self, sku: str) -> int: ...

    host = ActorHost({"inventory": Inventory})   # all instances of all names of one member
    commands = host.decode(batch)
    host.check(commands)                         # the leader, before they enter the log
    results = host.apply(batch, commands)        # every member, once committed: packed results
    host.query("inventory", key, "available", arguments)    # -> packed result
    host.changes("inventory", None, index)       # -> (the newest changes from there on, where to ask on)
    host.chain, host.lineage, host.trail         # what members compare (``digest.py``)
    cut = host.begin_cut(); cut.next_piece(bytes_max); cut.close()      # a snapshot's pieces (``cut.py``)
    host.adopt(host.prepare(pieces))

    lint(Inventory)                              # -> what looks as if members would differ

What is logged is the call (``wire/commands.py``), never its effect. So a class must be deterministic: the same state
and the same call give the same state and the same result, whatever the process, the hour and the hash seed.

What it promises
  * **Commands** run one after the other, in the order of the log, once on each member, each as a plain synchronous
    call. Time, dice and ids come from the command's place in the log; a query has the time of the latest batch and no
    dice.
  * **Results.** What a command returns, or the exception that it raises, is its result: packed bytes, equal on all
    members. A result that can not be packed is a failure, and so is a state that can not be. What a command changed
    before it raised stays changed, as in any method.
  * **Failures of the machine** are no results: an exception of ``MACHINE_FAILURES``, or none that is an ``Exception``,
    leaves ``apply``; the node stops, and runs the command again when it is started again.
  * **Code.** A leader lets in only what its code knows (``check``). A member that meets a committed command of an
    actor, a method or a version that its code does not know raises ``OutdatedCodeError``: a stop, never a skip. So does
    one whose code can not take over the states of a snapshot.
  * **Comparable.** Members with the same code that applied the same log have the same chain, whenever they were
    restarted and from whichever snapshot. Where chains differ, the trail finds the first command that differed.
  * **Cuts** are of one index, while commands go on. Beginning one takes no longer than there are names.
  * **Bounds.** Changes are kept up to 16 MiB, the trail up to 65,536 commands; one answer to a watcher looks at a
    thousand changes. Packing states for digests costs at most ``CREDIT`` bytes a command on average.
  * **At class definition** what could never work is refused with a TypeError: async methods and generators, arguments
    of types that are no values, a constructor with parameters, an override that would hide a command.

What it assumes
  * One thread for everything but ``prepare``. Batches are committed, and come in order, each once.
  * The states of instances are their own: two instances share no mutable value, nor does a class attribute change.

State and invariants
  * an instance is awake (an object) or asleep (the bytes that a snapshot had of it); it never goes to sleep again
  * instances are never removed, and stand in the order of their first commands, which the log decides
  * ``log_version <= version`` of each name: the highest version that the log has carried, that of the code
  * the chain after an index is a function of the log up to it and of the lineage

The modules
  * ``actor``: :class:`ReplicatedActor`, and the place in the log where a command runs. ``methods``: ``@command`` and
    ``@query``. ``definition``: the check of a class, and the interface that follows from it. ``lint``.
  * ``host``: all instances of one member. ``hosted``: one name, and an instance of it. ``changes``: the newest commands
    with their results. ``cut``: snapshots of the instances. ``digest``: the chain that members compare.

What it lacks on purpose
  * A sandbox: Python can always ask the clock. The lint reads, the digests compare, and the simulator runs it.
  * Calls from one actor to another: a command could wait then. One actor that holds both, or a service that calls both.
  * Removing an instance, and states that do not fit in memory.
"""

from viewstamp.actors.replicated.actor import ReplicatedActor
from viewstamp.actors.replicated.cut import ActorCut
from viewstamp.actors.replicated.host import ActorHost
from viewstamp.actors.replicated.hosted import MACHINE_FAILURES
from viewstamp.actors.replicated.lint import lint
from viewstamp.actors.replicated.methods import QueryCall, command, query
from viewstamp.wire.commands import Stale

__all__ = [
    "MACHINE_FAILURES",
    "ActorCut",
    "ActorHost",
    "QueryCall",
    "ReplicatedActor",
    "Stale",
    "command",
    "lint",
    "query",
]
