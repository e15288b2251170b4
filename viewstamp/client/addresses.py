"""Where nodes may be reached: what the caller named, and what nodes say of the members. No connection, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from viewstamp.ids import name_of

__all__ = ["Addresses"]

_LEARNT_MAX = 64


class Addresses:
    """The addresses that a client tries.

    A node may have been removed long ago, or have settings of long ago: what it says counts only where nobody has named
    a newer membership, and memberships of the same age are put together.

    Invariants:
      * what the caller named is never dropped
      * of what was learnt only the newest membership is kept, and no more than ``_LEARNT_MAX`` addresses
    """

    def __init__(self, given: Sequence[str], admits: Callable[[str], bool] = lambda address: True) -> None:
        """Begin with the addresses that the caller named; ``admits`` says which others may be learnt."""
        self.all = list(dict.fromkeys(given))
        """Every address, those that were given first. Replaced and never changed."""
        self.generation = 0
        """Of the newest membership that was heard of."""
        self._given = self.all
        self._admits = admits
        self._learnt: dict[str, str] = {}
        """Address to the member's id; "" = unknown."""
        self._met: dict[str, str] = {}
        """Given address to who answered there last: a member may be known by more than one address."""

    def learn(self, members: Mapping[str, str], generation: int) -> None:
        """Hear who the members are: id to address."""
        if generation < self.generation:
            return
        if generation > self.generation:
            self.generation, self._learnt = generation, {}
        for member, address in members.items():
            if address and self._admits(address) and (address in self._learnt or len(self._learnt) < _LEARNT_MAX):
                self._learnt[address] = member
        self.all = list(dict.fromkeys([*self._given, *self._learnt]))

    def meet(self, address: str, node: str) -> None:
        """Take note of who answers at an address."""
        if address in self._given:
            self._met[address] = node

    def is_member(self, address: str) -> bool:
        """Whether a member is there, as far as is known; before any is known, whoever answers may be one."""
        return not self._learnt or address in self._learnt or self._met.get(address) in self._learnt.values()

    def name(self, address: str) -> str:
        """Return the name of the node at an address, as far as it is known; else the address."""
        return name_of(self._learnt.get(address) or self._met.get(address) or address)

    def of(self, node: str) -> list[str]:
        """Return every address, and first those of the member with this id, or of this name."""
        return sorted(self.all, key=lambda address: not self._is_of(address, node))

    def _is_of(self, address: str, node: str) -> bool:
        known = self._learnt.get(address) or self._met.get(address, "")
        return bool(known) and node in (known, name_of(known))
