"""Watches an actor: yields each change once, in order, even if several nodes answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from viewstamp.client.groups import Groups
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Change, result_or_error
from viewstamp.errors import CommandError, TrimmedError, UnavailableError, UnknownActorError
from viewstamp.ids import GROUP_0, Index
from viewstamp.wire.commands import decode_arguments
from viewstamp.wire.requests import WatchActor
from viewstamp.wire.spread_actors import SpreadActor

__all__ = ["Watcher"]


class Watcher:
    """One pass over the changes of an actor.

    Invariants:
      * ``index`` only grows; each change that is returned has an index below it and not below its former value. So no
        change is repeated or left out, although nodes have applied different indices
    """

    def __init__(
        self,
        groups: Groups,
        options: ClientOptions,
        actor: str,
        key: str | None,
        index: int,
        *,
        find_owners: Callable[[str, float], Awaitable[SpreadActor | None]],
        errors: Mapping[str, type[CommandError]],
    ) -> None:
        """Begin.

        Args:
          groups: the groups of the client.
          options: of the client.
          actor: its name.
          key: of the instance; None = all.
          index: the first index of interest; 0 = from now on.
          find_owners: finds the groups that own the instances of an actor, within a deadline.
          errors: classes by name, for the errors of commands.
        """
        self.index = index
        self.node: str | None = None
        """The member to ask, because others keep too few changes; None = any."""
        self._actor = actor
        self._key = key
        self._errors = errors
        self._groups = groups
        self._group = GROUP_0
        self._floor = groups.group_0.sender.session.applied_index + 1
        """With ``index`` 0 the lowest index that may be returned, because a node that is behind may name less."""
        self._find_owners = find_owners
        self._options = options
        self._untried: list[str] | None = None
        """Members that have not answered TrimmedError; None = no member has."""

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Yield the changes, in order; never ends."""
        while True:
            for change in await self.next_changes():
                yield change

    async def next_changes(self) -> list[Change]:
        """Return the next changes; [] = none yet. Cancelled: the next call continues without a gap."""
        # With index 0 the node answers at once, with the index at which it is.
        wait = self._options.follow_wait if self.index else 0.0
        request = WatchActor(actor=self._actor, key=self._key, index=self.index, wait=wait)
        with self._groups.call(self._group) as parts:
            parts.router.start()
            router = parts.router
            try:
                _, frame = await router.ask_any(
                    request, seconds=self._options.timeout + wait, wait=wait, node=self.node
                )
            except TrimmedError as error:
                self.on_trimmed(error, [str(each["id"]) for each in await router.status() if each["reachable"]])
                return []
            except UnknownActorError as error:
                await self._move(error)
                return []
            except UnavailableError:
                if router.is_closed or not self.on_away():
                    raise
                return []
        return self.on_answer(frame.body)

    async def _move(self, error: UnknownActorError) -> None:
        """Go to the group that owns the instance. Raises ``error`` if group 0 owns it, or all instances are watched."""
        router = self._groups.group_0.router
        if not error.is_spread or self._key is None or self._group != GROUP_0:
            raise error
        owners = await self._find_owners(self._actor, router.deadline(None))
        if owners is None:
            raise error
        self._group = owners.group_of(self._key)
        with self._groups.call(self._group) as parts:
            self._floor = parts.sender.session.applied_index + 1

    def on_answer(self, body: Mapping[str, Any]) -> list[Change]:
        """Process an answer; return the new changes."""
        first = self.index or self._floor
        changes = [self._change(*change) for change in body["changes"] if change[0] >= first]
        self.index = max(first, int(body["index"]), changes[-1].index + 1 if changes else 1)
        self._untried = None
        return changes

    def on_trimmed(self, error: TrimmedError, members: Sequence[str]) -> None:
        """Go to another member after TrimmedError, because a restarted node keeps fewer changes than others.

        Args:
          error: the node's answer.
          members: the ids of all known members.

        Raises:
          TrimmedError: all of them were asked.
        """
        if self._untried is None:
            self._untried = list(members)
        if not self._untried:
            raise TrimmedError(
                f"the changes of the actor {self._actor!r} from index {self.index} on are not kept any more:"
                f" {error.message}",
                first=error.first,
                remedy="read the actor's present state by a query, then watch again, from now on",
            ) from error
        self.node = self._untried.pop(0)

    def on_away(self) -> bool:
        """Go to another member after the chosen one was unreachable; return whether there was a chosen one."""
        was_chosen = self.node is not None
        self.node = self._untried.pop(0) if self._untried else None
        return was_chosen

    def _change(
        self, index: int, timestamp: int, actor: str, key: str, command: str, arguments: bytes, packed: bytes
    ) -> Change:
        given, named = decode_arguments(arguments)
        result = result_or_error(packed, self._errors)
        error = result if isinstance(result, CommandError) else None
        return Change(
            Index(index), timestamp, actor, key, command, given, named, None if error is not None else result, error
        )
