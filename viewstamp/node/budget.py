"""The limit of appends that wait for an answer, of which each group of a node has a share.

Half of the limit is divided among the groups, and all of them may use the other half. So a group without a majority,
whose appends wait for long, cannot make the node refuse those of other groups. A node with one group has no shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from viewstamp.errors import OverloadedError
from viewstamp.ids import GroupId

__all__ = ["AppendBudget", "Appending"]


class Appending(Protocol):
    """A group, as far as its appends are counted."""

    in_flight_bytes: int
    """Bytes of the clients' batches that are not answered; the server changes it."""


class AppendBudget:
    """Decides which batches of clients a node takes.

    Invariants:
      * the batches that wait for an answer take at most ``bytes_max``, plus one batch in each group
      * no batch is refused if those of its group take at most ``share_bytes`` with it
    """

    def __init__(self, bytes_max: int, groups: Mapping[GroupId, Appending]) -> None:
        self._bytes_max = bytes_max
        self._groups = groups
        """All groups of the node; the node changes it."""
        self.share_bytes = bytes_max
        """The part of the limit that each group may use whatever the others do."""

    @property
    def used(self) -> int:
        """Bytes of the batches that wait for an answer, in all groups."""
        return sum(group.in_flight_bytes for group in self._groups.values())

    def divide(self) -> None:
        """Compute the shares, because the number of groups has changed."""
        count = len(self._groups)
        self.share_bytes = self._bytes_max // (2 * count if count > 1 else 1)

    def check(self, group: Appending, size: int) -> None:
        """Raise OverloadedError if a group that uses its share already may not take ``size`` bytes more."""
        over = sum(
            max(0, each.in_flight_bytes - self.share_bytes) for each in self._groups.values() if each is not group
        )
        over += group.in_flight_bytes + size - self.share_bytes
        if over > self._bytes_max - len(self._groups) * self.share_bytes:
            raise OverloadedError(
                f"{self.used} bytes of appends wait on this node, {group.in_flight_bytes} of them in this group,"
                f" the limit is {self._bytes_max}",
                remedy="try again a little later",
            )
