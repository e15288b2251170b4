"""``Hosted``: one name under which a host keeps instances of one class; ``Instance``: one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from viewstamp.actors.replicated.actor import Moment, ReplicatedActor
from viewstamp.actors.replicated.definition import methods_of
from viewstamp.actors.replicated.methods import CommandMethod
from viewstamp.errors import OutdatedCodeError, RequestError
from viewstamp.wire.values import pack, unpack

__all__ = ["MACHINE_FAILURES", "Hosted", "Instance"]

MACHINE_FAILURES = (OSError, MemoryError, RecursionError, SystemError, ImportError)
"""Exceptions that say something about this process and not about the state: no result of a command, they stop the
node. So does whatever is no ``Exception`` at all."""


class Instance:
    """One instance, awake (``actor``) or still as a snapshot had it (``packed``).

    Invariants:
      * exactly one of ``actor`` and ``packed`` is not None

    ``version``: of the class whose state ``packed`` is. ``credit``, ``size``: the budget of its digests, and the bytes
    of its state at the last one, both as of ``era`` (``digest.py``). ``cut``: the number of the cut that needs nothing
    of it any more.
    """

    __slots__ = ("actor", "credit", "cut", "era", "key", "packed", "size", "version")

    def __init__(self, key: str, actor: ReplicatedActor | None, packed: bytes | None, version: int) -> None:
        self.key = key
        self.actor = actor
        self.packed = packed
        self.version = version
        self.credit = 0
        self.size = 0
        self.era = 0
        self.cut = 0


class Hosted:
    """A name, its class, and all instances.

    ``order``: the instances as they were first commanded; it only grows, so a cut knows its own by their number.
    ``log_version``: the highest version that a command in the log has carried, 0 = none yet. ``low``, ``high``: the
    checksums over this name's results and states. ``applied``: those of the batch that is being applied, which come
    into the checksums at its end.
    """

    __slots__ = (
        *("applied", "cls", "commands", "has_plain_state", "high", "instances", "interface", "log_version", "low"),
        *("moment", "name", "order", "queries", "version"),
    )

    def __init__(self, name: str, cls: type[ReplicatedActor], moment: Moment) -> None:
        self.name = name
        self.cls = cls
        self.moment = moment
        self.interface = cls.__viewstamp__
        self.version = cls.version
        self.commands: dict[str, Callable[..., Any]] = {}
        self.queries: dict[str, Callable[..., Any]] = {}
        for method, descriptor in methods_of(cls).items():
            table = self.commands if isinstance(descriptor, CommandMethod) else self.queries
            table[method] = descriptor.function
        self.has_plain_state = cls.get_state is ReplicatedActor.get_state
        self.instances: dict[str, Instance] = {}
        self.order: list[Instance] = []
        self.log_version = 0
        self.applied: list[bytes] = []
        self.low = 0
        self.high = 0

    def fresh(self, key: str) -> ReplicatedActor:
        """Make an instance and run its ``__init__``, which may raise whatever it likes."""
        actor = self.cls._viewstamp_make(key, self.moment)
        actor.__init__()  # type: ignore[misc]  # made without running it, so that the moment is there when it runs
        return actor

    def add(self, instance: Instance) -> None:
        """Keep ``instance`` for good."""
        assert instance.key not in self.instances, f"{self.name}[{instance.key!r}] is there already"
        self.instances[instance.key] = instance
        self.order.append(instance)

    def wake(self, instance: Instance) -> ReplicatedActor:
        """Return the instance's actor, made from its packed state if need be.

        Raises:
          OutdatedCodeError: the class can not take over the state; the node must not go on without it.
        """
        if instance.actor is None:
            instance.actor = self.revive(instance)
            instance.packed = None
        return instance.actor

    def revive(self, instance: Instance) -> ReplicatedActor:
        """Make an actor from a packed state, and leave ``instance`` as it is. Raises as :meth:`wake`."""
        assert instance.packed is not None
        # In a moment of its own: when a state is taken over differs from member to member, so it must not show.
        actor = self.cls._viewstamp_make(instance.key, Moment())
        try:
            actor.set_state(unpack(instance.packed), instance.version)
        except Exception as error:
            raise OutdatedCodeError(
                f"{self.cls.__qualname__} of version {self.version} can not take over the state of"
                f" {self.name}[{instance.key!r}], which version {instance.version} wrote: {error!r}",
                remedy="correct set_state() and start this node again; the others go on without it",
            ) from error
        actor._viewstamp_moment = self.moment
        return actor

    def pack_state(self, actor: ReplicatedActor) -> bytes:
        """Return the bytes of an actor's state.

        Raises:
          RequestError: something in it can not be packed; the message says what and where.
        """
        state = actor.__dict__ if self.has_plain_state else self._get_state(actor)
        try:
            return pack(state)
        except RequestError:
            raise self.unpackable(state) from None

    def _get_state(self, actor: ReplicatedActor) -> Any:
        try:
            return actor.get_state()
        except MACHINE_FAILURES:
            raise
        except Exception as error:
            raise RequestError(f"{self.cls.__qualname__}.get_state() raised {error!r}") from error

    def unpackable(self, state: Any) -> RequestError:
        """Return the error that says what in ``state`` can not be packed, by the attribute where there is one."""
        try:
            if self.has_plain_state:
                for name, value in state.items():
                    pack(value, f"self.{name}")
            pack(state, "the state")
        except RequestError as error:
            return error
        return RequestError("the state can not be packed")

    def packed_state(self, instance: Instance) -> tuple[int, bytes]:
        """Return the state as a snapshot has it: the version of the class that wrote it, and its bytes."""
        if instance.packed is not None:
            return instance.version, instance.packed
        assert instance.actor is not None
        return self.version, self.pack_state(instance.actor)
