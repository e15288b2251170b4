"""``MemberState``: one member's own instances of the actors, for invariants."""

from __future__ import annotations

from typing import TypeVar, cast

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.testing.watched import WatchedHost

__all__ = ["MemberState"]

ActorT = TypeVar("ActorT", bound=ReplicatedActor)


class MemberState:
    """One member's state at this moment. The instances are the member's own: read them, and change nothing."""

    def __init__(self, member: str, host: WatchedHost) -> None:
        self.member = member
        """The member's name."""
        self._host = host

    def actor(self, name: str, cls: type[ActorT], *, key: str = "") -> ActorT:
        """Return the instance of an actor; a new one if no command has created it yet.

        Raises:
          UnknownActorError: no actor has this name.
        """
        return cast("ActorT", self._host.instance(name, key))

    def actors(self, name: str, cls: type[ActorT]) -> dict[str, ActorT]:
        """Return all instances of an actor by their keys.

        Raises:
          UnknownActorError: no actor has this name.
        """
        return cast("dict[str, ActorT]", self._host.instances(name))
