"""``Hosted``: the instances of one actor's name; ``Instance``: one of them."""

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
"""Exceptions that are caused by this process and not by the state. They are no result of a command and stop the node,
and so does any exception that is not an ``Exception``."""


class Instance:
    """One instance, awake (``actor``) or asleep, as a snapshot had it (``packed``).

    Invariants:
      * exactly one of ``actor`` and ``packed`` is not None

    Attributes:
      version: the version of the class that wrote ``packed``.
      credit: the credit of its digests, see ``digest.py``.
      size: the size of its state at the last digest, in bytes.
      era: the era to which ``credit`` and ``size`` belong.
      cut: the number of the latest cut that needs nothing more of it.
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

    @property
    def stored(self) -> tuple[str, int, bytes]:
        """The key, the version and the packed state of an instance that is asleep."""
        assert self.packed is not None, f"instance {self.key!r} is awake"
        return self.key, self.version, self.packed


class Hosted:
    """One name, its class, and all instances.

    Attributes:
      order: the instances in the order of their first commands. It only grows while a cut is open, so a cut
        identifies its instances by their number.
      log_version: the highest version of a command in the log; 0 = none yet.
      low, high: the checksums over this name's results and states.
      applied: the results and states of the batch that is being applied, which enter the checksums at its end.
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
        """Create an instance and run its ``__init__``, which may raise any exception."""
        actor = self.cls._viewstamp_make(key, self.moment)
        actor.__init__()  # type: ignore[misc]  # runs only now, because it may use the moment
        return actor

    def add(self, instance: Instance) -> None:
        """Add ``instance`` for good."""
        assert instance.key not in self.instances, f"{self.name}[{instance.key!r}] exists already"
        self.instances[instance.key] = instance
        self.order.append(instance)

    def wake(self, instance: Instance) -> ReplicatedActor:
        """Return the instance's actor; an instance that is asleep is built from its packed state first.

        Raises:
          OutdatedCodeError: the class cannot read the state; the node must not continue without it.
        """
        if instance.actor is None:
            instance.actor = self.revive(instance)
            instance.packed = None
        return instance.actor

    def revive(self, instance: Instance) -> ReplicatedActor:
        """Build an actor from a packed state without changing ``instance``. Raises as :meth:`wake`."""
        assert instance.packed is not None
        # With a moment of its own, because members read a state at different times and the result must not depend on
        # it.
        actor = self.cls._viewstamp_make(instance.key, Moment())
        try:
            actor.set_state(unpack(instance.packed), instance.version)
        except Exception as error:
            raise OutdatedCodeError(
                f"version {self.version} of {self.cls.__qualname__} cannot read the state of"
                f" {self.name}[{instance.key!r}], which version {instance.version} wrote: {error!r}",
                remedy="correct set_state() and start this node again; the other members continue without it",
            ) from error
        actor._viewstamp_moment = self.moment
        return actor

    def pack_state(self, actor: ReplicatedActor) -> bytes:
        """Return the bytes of an actor's state.

        Raises:
          RequestError: something in it cannot be packed; the message names the attribute.
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
        """Return the error for a state that cannot be packed; it names the attribute if it can.

        Its text becomes the result of a command, which members compare. So it must stay the same in every release.
        """
        try:
            if self.has_plain_state:
                for name, value in state.items():
                    pack(value, f"self.{name}")
            pack(state, "the state")
        except RequestError as error:
            return error
        return RequestError("the state can not be packed")

    def packed_state(self, instance: Instance) -> tuple[int, bytes]:
        """Return the state for a snapshot: the version of the class that wrote it, and its bytes."""
        if instance.packed is not None:
            return instance.version, instance.packed
        assert instance.actor is not None
        return self.version, self.pack_state(instance.actor)
