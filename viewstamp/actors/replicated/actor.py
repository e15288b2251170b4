"""``ReplicatedActor``, what users derive from, and the ``Moment`` of the log that it runs in."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, ClassVar, Self
from uuid import UUID

from viewstamp.actors.replicated.definition import InterfaceOf, check_class
from viewstamp.errors import CommandError, RequestError
from viewstamp.wire.commands import Interface

__all__ = ["Moment", "ReplicatedActor"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment:
    """All that a command may know of the world: its place in the log. One is shared by the instances of a host.

    ``index`` 0 = no command is running: a query, or a test that holds the bare object. ``log_time``: microseconds since
    1970. ``version``: of the caller's class.
    """

    __slots__ = ("_dice", "_drawn_at", "_ids", "index", "log_time", "version")

    def __init__(self) -> None:
        self.index = 0
        self.log_time = 0
        self.version = 0
        self._drawn_at = 0
        self._ids = 0
        self._dice: random.Random | None = None

    def dice(self) -> random.Random:
        """Return the running command's dice, the same until it ends."""
        self._draw("self.random")
        if self._dice is None:
            self._dice = random.Random(self.index)
        return self._dice

    def next_id(self) -> int:
        """Return how many ids the running command has drawn, this one included."""
        self._draw("self.new_id()")
        self._ids += 1
        return self._ids

    def _draw(self, what: str) -> None:
        if not self.index:
            raise RequestError(f"{what} is for commands, and none is running: members would not agree on it")
        if self._drawn_at != self.index:  # here and not at each command's start: most of them draw nothing
            self._drawn_at = self.index
            self._ids = 0
            self._dice = None


class ReplicatedActor:
    """A plain class whose instances live on every member of a cluster and change alike there, by commands of one log.

    Derive, and mark what changes state with ``@command`` and what reads it with ``@query``. Attributes are the state:
    plain values (``wire/values.py``), so that a snapshot can hold them. ``__init__`` takes no argument and runs at the
    first command of a name and key; everything here is available in it.

    ``version``: of this class; raise it with every change of what a command does or of what the state looks like.
    ``raises``: subclasses of ``CommandError`` that callers get as themselves, beside those that the class's module has.
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
        # Each class its own, and made when it is first asked for: by then its module has defined its errors.
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
        """The key of this instance: what tells it from the others of its name."""
        return self._viewstamp_key

    @property
    def now(self) -> datetime:
        """The time in UTC that the log gave the command: the same on every member, never going back.

        In a query: that of the last command, or later.
        """
        return _EPOCH + timedelta(microseconds=self._viewstamp_moment.log_time)

    @property
    def random(self) -> random.Random:
        """Dice that fall alike on every member: seeded from the command's place in the log. Not for secrets.

        Raises:
          RequestError: in a query.
        """
        return self._viewstamp_moment.dice()

    def new_id(self) -> UUID:
        """Return a UUID of version 7 (RFC 9562) that nobody else in this cluster gets; the same on every member.

        Its time is the log's; what is random elsewhere follows from the command's place in the log.

        Raises:
          RequestError: in a query.
        """
        moment = self._viewstamp_moment
        place = b"%d.%d.%d" % (moment.log_time, moment.index, moment.next_id())
        tail = int.from_bytes(blake2b(place, digest_size=10).digest(), "big")
        milliseconds = (moment.log_time // 1000) & 0xFFFF_FFFF_FFFF
        return UUID(
            int=milliseconds << 80 | 0x7 << 76 | (tail >> 62 & 0xFFF) << 64 | 0b10 << 62 | tail & 0x3FFF_FFFF_FFFF_FFFF
        )

    @property
    def command_version(self) -> int:
        """The version of the class in the caller's code; 0 = it called by name. In a query: the class's own."""
        return self._viewstamp_moment.version or (0 if self._viewstamp_moment.index else type(self).version)

    def get_state(self) -> Any:
        """Return the state as a plain value, for a snapshot. Override together with :meth:`set_state`.

        The state that ``set_state`` makes of it must give an equal value again.
        """
        return vars(self)

    def set_state(self, state: Any, version: int) -> None:
        """Take over a state of this class or of an older version of it. ``__init__`` has not run.

        Args:
          state: what ``get_state`` returned; it may be kept.
          version: of the class that returned it.
        """
        vars(self).clear()
        vars(self).update(state)
