"""Watching an actor: change after change, each once, in order, whichever nodes answer. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from viewstamp.client.results import Change, result_or_error
from viewstamp.errors import CommandError, TrimmedError
from viewstamp.ids import Index
from viewstamp.wire.commands import decode_arguments
from viewstamp.wire.requests import WatchActor

__all__ = ["Watcher"]


class Watcher:
    """One pass over the changes of an actor.

    Invariants:
      * ``index`` only grows, and every change that is handed out has one below it and not below what it was before:
        so nothing comes twice, and nothing is left out, though nodes are at different places
    """

    def __init__(
        self,
        actor: str,
        key: str | None,
        index: int,
        *,
        floor: int,
        errors: Mapping[str, type[CommandError]],
        wait: float,
    ) -> None:
        """Begin.

        Args:
          actor: its name.
          key: of the instance; None = all.
          index: the first index of interest; 0 = from now on.
          floor: for "now": the first index that is new to this client, whatever a node that is behind may say.
          errors: classes by name, for what commands raised.
          wait: seconds that a node may hold its answer.
        """
        self.index = index
        self.node: str | None = None
        """The member that is asked, because others keep too little; None = any."""
        self._actor = actor
        self._key = key
        self._floor = floor
        self._errors = errors
        self._wait = wait
        self._untried: list[str] | None = None
        """Members that have not said yet that they keep too little; None = nobody has."""

    @property
    def wait(self) -> float:
        """Seconds that the next answer may be held. The question where "now" is, is answered at once."""
        return self._wait if self.index else 0.0

    def request(self) -> WatchActor:
        """Return the next request."""
        return WatchActor(actor=self._actor, key=self._key, index=self.index, wait=self.wait)

    def on_answer(self, body: Mapping[str, Any]) -> list[Change]:
        """Take an answer; return the changes that are new."""
        first = self.index or self._floor
        changes = [self._change(*change) for change in body["changes"] if change[0] >= first]
        self.index = max(first, int(body["index"]), changes[-1].index + 1 if changes else 1)
        self._untried = None
        return changes

    def on_trimmed(self, error: TrimmedError, members: Sequence[str]) -> None:
        """Take the answer that a node does not keep these changes. Others may: one that was restarted keeps few.

        Args:
          error: what it said.
          members: all members that are known, by id.

        Raises:
          TrimmedError: every one of them was asked.
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
        """Take note that the member was not there; say whether others may be asked instead."""
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
