"""Replicated actors: plain classes whose instances live on every member and follow one log.

In short::

    class Inventory(ReplicatedActor):
        version = 1                              # of the class; its commands carry it
        def __init__(self) -> None:              # no arguments; runs at the first command of a name and key
            self.stock: dict[str, int] = {}
        @command
        def reserve(self, sku: str, n: int) -> bool: ...    # self.now, self.random, self.new_id(), self.key
        @query
        def available(self, sku: str) -> int: ...

    host = ActorHost({"inventory": Inventory})   # all instances of all names of one member
    commands = host.decode(batch)
    host.check(commands)                         # on the leader, before they enter the log
    results = host.apply(batch, commands)        # on every member, once committed: packed results
    host.query("inventory", key, "available", arguments)    # -> packed result
    host.changes("inventory", None, index)       # -> (the newest changes from index on, the index to ask from next)
    host.chain, host.lineage, host.trail         # compared between members (``digest.py``)
    cut = host.begin_cut(); cut.next_piece(bytes_max); cut.close()      # the pieces of a snapshot (``cut.py``)
    host.adopt(host.prepare(pieces))

    lint(Inventory)                              # -> code that would probably make members differ

The log holds the call (``wire/commands.py``), not its effect. So a class must be deterministic: the same state and the
same call give the same state and the same result, independent of the process, the time and the hash seed.

Promises
  * **Commands** run one after the other, in the order of the log, once on each member, each as a plain synchronous
    call. Time, random numbers and ids are computed from the command's place in the log; a query has the time of the
    latest batch and no random numbers.
  * **Results.** The result of a command is its return value, or the exception that it raises: packed bytes, equal on
    all members. If the result or the state cannot be packed, the command's result is that failure. Changes that the
    command made before it raised stay, as in any method.
  * **Failures of the machine** are not results: an exception of ``MACHINE_FAILURES``, or one that is not an
    ``Exception``, leaves ``apply``. The node stops, and runs the command again after its restart.
  * **Code.** A leader accepts only commands that its code has (``check``). A member whose code does not have the
    actor, the method or the version of a committed command raises ``OutdatedCodeError``: it stops instead of skipping
    the command. So does a member whose code cannot read the states of a snapshot.
  * **Comparable.** Members with the same code that applied the same log have the same chain, independent of restarts
    and snapshots. If chains differ, the trail finds the first command that differed.
  * **Cuts** are of one index, while commands continue. Beginning a cut takes time proportional to the number of names.
  * **Bounds.** Changes are kept up to 16 MiB, the trail up to 65,536 commands; one answer to a watcher looks at a
    thousand changes. Packing states for digests costs at most ``CREDIT`` bytes a command on average.
  * **At class definition** a class that could never work is refused with a TypeError: async methods and generators,
    arguments of types that are no values, a constructor with parameters, an override that would hide a command.

Assumptions
  * One thread for everything but ``prepare``. Batches are committed, and come in order, each once.
  * Instances share no mutable value with each other, and class attributes do not change.

State and invariants
  * an instance is awake (an object) or asleep (the bytes from a snapshot); once awake it stays awake
  * instances are in the order of their first commands, which the log decides; only a reshard removes some, and adds
    others (``streams/resharding.py``)
  * ``log_version <= version`` of each name: the highest version in the log, and the version of the code
  * the chain after an index is a function of the log up to it and of the lineage

The modules
  * ``actor``: :class:`ReplicatedActor`, and the place in the log at which a command runs. ``methods``: ``@command`` and
    ``@query``. ``definition``: the check of a class, and the interface that follows from it. ``lint``.
  * ``host``: all instances of one member. ``hosted``: one name, and an instance of it. ``changes``: the newest commands
    with their results. ``cut``: snapshots of the instances. ``digest``: the chain that members compare.

Deliberate omissions
  * A sandbox: Python code can always read the clock. The lint reads the source, the digests compare members, and the
    simulator runs the code.
  * Calls from one actor to another, because a command could then wait. Use one actor that holds both states, or a
    service that calls both actors.
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
