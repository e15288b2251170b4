"""Which address to try next, and when: the search for the leader. Knows no connection and no clock."""

from __future__ import annotations

import random

from viewstamp.client.addresses import Addresses
from viewstamp.errors import NotLeaderError, PeerError, ViewstampError

__all__ = ["LeaderSearch"]

_GROWTH = 1.25
"""Of the waits: a leader that was elected is found a quarter later than it could have been, at most."""
_REDIRECTS_MAX = 2
"""Hints that are followed one after the other without waiting: nodes that know less may name each other."""


class LeaderSearch:
    """Goes round the known addresses, follows hints, and waits a little longer each time.

    Invariants:
      * within a round each address is tried once, those of members first
      * a hint is followed once; one that names the address that could not be reached last only now and then
      * ``delay`` is 0 only after the first failure, for a few hints in a row, and where nobody was reached and there
        are others left in this round
    """

    def __init__(self, addresses: Addresses, *, entropy: random.Random, back_off: tuple[float, float]) -> None:
        self.addresses = addresses
        self.last_error: ViewstampError | None = None
        """Why the latest attempt failed; None = it did not."""
        self._entropy = entropy
        self._back_off = back_off
        self._at = entropy.randrange(len(addresses.all))
        """Where a round begins: each at another member."""
        self._round: list[str] = []
        """What is left of this round, the next one last."""
        self._generation = addresses.generation
        """Of the membership that the round goes through."""
        self._hint: str | None = None
        self._away: str | None = None
        self._ignored = 0
        """Hints to ``_away`` that were not followed."""
        self._failures = 0
        self._waits = 0
        self._redirects = 0
        self._goes_on = False
        """The latest attempt reached nobody: it cost the others nothing, so the next of this round is tried at once."""
        self._strangers: dict[str, PeerError] = {}

    def next_address(self) -> str:
        """Return the address to try now."""
        hint, self._hint = self._hint, None
        if hint is not None:
            return hint
        if not self._round or self._generation != self.addresses.generation:
            self._begin_round()
        return self._round.pop()

    def _begin_round(self) -> None:
        self._generation = self.addresses.generation
        self._at += 1
        known = self.addresses.all
        members = [address for address in known if self.addresses.is_member(address)] or known
        at = self._at % len(members)
        others = [address for address in known if address not in members]
        self._round = [*members[at:], *members[:at], *others][::-1]

    def failed(self, address: str, error: ViewstampError, *, is_away: bool = False) -> None:
        """Take note that ``address`` could not help; ``is_away`` = it cannot even be reached."""
        self.last_error = error
        self._failures += 1
        self._goes_on = is_away and bool(self._round)
        if isinstance(error, PeerError):
            self._strangers[address] = error
        else:
            self._strangers.pop(address, None)
        if isinstance(error, NotLeaderError):
            hint = error.address
            if hint is not None:
                self.addresses.learn({error.leader or "": hint}, 0)
                # Followers name a dead leader for a while: going there again and again finds the new one no sooner.
                if hint == self._away:
                    self._ignored += 1
                    if self._ignored >= 2 * len(self.addresses.all):
                        self._away = None
                elif hint != address:
                    self._hint = hint
                    self._redirects += 1
        elif is_away:
            self._away, self._ignored = address, 0

    def succeeded(self) -> None:
        """Take note that the leader was found and has answered."""
        self.last_error = None
        self._failures = 0
        self._waits = 0
        self._redirects = 0
        self._away = None
        self._round = []

    @property
    def strangers(self) -> PeerError | None:
        """The latest refusal, if at every known address somebody answers who is none of ours."""
        if self._strangers and all(address in self._strangers for address in self.addresses.all):
            return next(reversed(self._strangers.values()))
        return None

    def delay(self) -> float:
        """Return how many seconds to wait before the next attempt. Asked once per attempt."""
        if self._failures <= 1 or self._goes_on:
            return 0.0
        if self._hint is not None and self._redirects <= _REDIRECTS_MAX:
            return 0.0
        self._redirects = 0
        # The exponent is bounded because a cluster may be away for days, and floats overflow.
        shortest, longest = self._back_off
        delay = min(longest, shortest * _GROWTH ** min(self._waits, 64)) * self._entropy.uniform(0.5, 1.0)
        self._waits += 1
        return delay
