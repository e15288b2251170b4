"""``ReplicatedActor``, the base class of users' actors, and ``Moment``, the place in the log where a command runs."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, ClassVar, Self
from uuid import UUID

from viewstamp.actors.replicated.definition import InterfaceOf, check_class
from viewstamp.errors import CommandError, RequestError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.wire.commands import Interface

__all__ = ["Moment", "ReplicatedActor"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment:
    """The place in the log of the running command: the only outside input that a command may use.

    The instances of a host share one. ``index`` 0 = no command is running: a query, or a test that calls a bare
    instance. ``log_time`` is in microseconds since 1970. ``version`` is that of the caller's class. ``group`` is the
    group of the log; commands of different groups may have the same index and log time.
    """

    __slots__ = ("_dice", "_drawn_at", "_ids", "group", "index", "log_time", "version")

    def __init__(self, group: GroupId = GROUP_0) -> None:
        self.group = group
        self.index = 0
        self.log_time = 0
        self.version = 0
        self._drawn_at = 0
        self._ids = 0
        self._dice: random.Random | None = None

    def dice(self) -> random.Random:
        """Return the running command's random generator, the same one until the command ends."""
        self._draw("self.random")
        if self._dice is None:
            self._dice = random.Random(f"{self.group}.{self.index}" if self.group else self.index)
        return self._dice

    def next_id(self) -> int:
        """Return the number of ids that the running command has drawn, this one included."""
        self._draw("self.new_id()")
        self._ids += 1
        return self._ids

    def _draw(self, what: str) -> None:
        if not self.index:
            raise RequestError(f"{what} is for commands, and none is running: members would not agree on it")
        if self._drawn_at != self.index:  # Reset here and not at each command's start, because most draw nothing.
            self._drawn_at = self.index
            self._ids = 0
            self._dice = None


class ReplicatedActor:
    """Base class of a replicated state machine. Each instance lives on every member and changes there in the same way.

    Mark methods that change the state with ``@command`` and methods that read it with ``@query``. Commands run on every
    member in the order of the log, so a command must be deterministic: the same state and arguments give the same new
    state and result. Use :attr:`now`, :attr:`random` and :meth:`new_id` instead of the clock and of random numbers.

    The attributes are the state. They hold plain values (``wire/values.py`` lists them), because snapshots store them.
    ``__init__`` takes no argument and runs as a part of the first command for a name and key.

    Example::

        class Inventory(ReplicatedActor):
            def __init__(self) -> None:
                self.stock = {"A-17": 3}

            @command
            def reserve(self, sku: str, n: int) -> bool:
                if self.stock.get(sku, 0) < n:
                    return False
                self.stock[sku] -= n
                return True

            @query
            def available(self, sku: str) -> int:
                return self.stock.get(sku, 0)

    Attributes:
      version: the version of the class. Raise it whenever a command behaves differently or the state looks different.
      raises: subclasses of ``CommandError`` that callers get as themselves, in addition to those defined in the class's
        module.
    """

    __slots__ = ("_viewstamp_key", "_viewstamp_moment")

    version: ClassVar[int] = 1
    raises: ClassVar[tuple[type[CommandError], ...]] = ()
    __viewstamp__: ClassVar[Interface]
    _viewstamp_key: str
    _viewstamp_moment: Moment

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls)
        # One for each class, built at its first use, because by then the class's module has defined its errors.
        cls.__viewstamp__ = InterfaceOf(cls)  # type: ignore[assignment]

    def __new__(cls, *args: object, **kwargs: object) -> Self:  # noqa: D102
        return cls._viewstamp_make("", Moment())

    @classmethod
    def _viewstamp_make(cls, key: str, moment: Moment) -> Self:
        """Make an instance without running its ``__init__``."""
        self = object.__new__(cls)
        self._viewstamp_key = key
        self._viewstamp_moment = moment
        return self

    @property
    def key(self) -> str:
        """The key of this instance. Instances of one name have different keys; "" is a key like any other."""
        return self._viewstamp_key

    @property
    def now(self) -> datetime:
        """The log time of the command, in UTC: the same on every member, and never earlier than before.

        In a query: the log time of the last applied batch.
        """
        return _EPOCH + timedelta(microseconds=self._viewstamp_moment.log_time)

    @property
    def random(self) -> random.Random:
        """A random generator that gives the same numbers on every member.

        Not for secrets: its seed is the command's place in the log.

        Raises:
          RequestError: in a query.
        """
        return self._viewstamp_moment.dice()

    def new_id(self) -> UUID:
        """Return a UUID of version 7 (RFC 9562), unique in this cluster and the same on every member.

        Its time is the log time. The bits that are random in other UUIDs are computed from the command's place in the
        log.

        Raises:
          RequestError: in a query.
        """
        moment = self._viewstamp_moment
        place = b"%d.%d.%d" % (moment.log_time, moment.index, moment.next_id())
        if moment.group:
            place += b".%d" % moment.group
        tail = int.from_bytes(blake2b(place, digest_size=10).digest(), "big")
        milliseconds = (moment.log_time // 1000) & 0xFFFF_FFFF_FFFF
        return UUID(
            int=milliseconds << 80 | 0x7 << 76 | (tail >> 62 & 0xFFF) << 64 | 0b10 << 62 | tail & 0x3FFF_FFFF_FFFF_FFFF
        )

    @property
    def command_version(self) -> int:
        """The version of the class in the caller's code; 0 = the caller named the actor without its class.

        A command can use it to treat callers of an older version differently. In a query it is ``version``.
        """
        return self._viewstamp_moment.version or (0 if self._viewstamp_moment.index else type(self).version)

    def get_state(self) -> Any:
        """Return the state as a plain value, for a snapshot. Override it together with :meth:`set_state`.

        ``set_state`` followed by ``get_state`` must return an equal value, because members compare states.
        """
        return vars(self)

    def set_state(self, state: Any, version: int) -> None:
        """Set the state from a snapshot of this version of the class or an older one. ``__init__`` has not run.

        Args:
          state: the value that ``get_state`` returned. This instance owns it and may keep it.
          version: the version of the class whose ``get_state`` returned it.
        """
        vars(self).clear()
        vars(self).update(state)
