"""Where a request goes: the addresses that a client knows, which of them is next, and what an error means.

Pure: knows no connection, clock or event loop. What a client does about an error is decided here, for all its parts:

| ``Reaction`` | a batch of a session | another request to the leader | a request to any node |
| --- | --- | --- | --- |
| FINAL | is out of the log for good; its sequence is fenced | raised | raised |
| LATER | is sent again to this node after a pause, if it has shown that it leads; else to the next | the same | goes \
to the next node |
| ELSEWHERE | goes to the leader that the error names, or to the next node; this attempt is in doubt | the same, and \
not in doubt | the same |
| UNKNOWN | goes to the next node; this attempt is in doubt | the same | goes to the next node |

An attempt in doubt may be in the log. Only a request whose attempts are all certain may be called "not written". The
session has three errors of its own: StaleSessionError ends it, PositionMismatchError decides a sequence, and with
StorageFullError what was not sent fails too, because it needs the same space. A refusal by a
node that does not lead any more is in doubt for a session, whose earlier attempts may have reached that node's log.

The nodes that a caller expects
-------------------------------
A copy of a cluster's directory holds the same cluster id, node ids and incarnations as the original, and its nodes
name the original's addresses as the members'. A client that followed those addresses would act on the original. So a
caller that names a directory sets ``ClientOptions.expected``, and the client compares before it sends anything
but HELLO:

| who is met | is taken |
| --- | --- |
| at an address of the directory: the node that the directory has there, with its incarnation | yes |
| at an address of the directory: another node, another cluster, or another incarnation | refused |
| at an address of the directory: the right node, which runs on a copy of the directory, or on its original | refused |
| at an address of the directory: the right node, whose membership has it at another address | asked for STATUS only |
| at an address of the directory: the right node, which replays its log and proves nothing yet | asked for STATUS only |
| at another address: a member whose name is in the directory | refused, without a connection |
| at another address: a member whose name is not in the directory, if a node of the directory names it, and the \
membership has that node at the very address where it was reached | yes |
| at another address: anything else | refused, without a connection |

The last row but one is a cluster of which some nodes are in the directory. A node of a copy cannot vouch for members
of the original, because the original's membership has another address for that node.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from viewstamp.enums import fast_members
from viewstamp.errors import (
    ClosedError,
    CommandError,
    NoQuorumError,
    NotLeaderError,
    PeerError,
    RequestError,
    StorageFullError,
    UnavailableError,
    ViewstampError,
    WrongNodeError,
)
from viewstamp.ids import name_of

__all__ = [
    "REACTIONS",
    "Addresses",
    "ExpectedNode",
    "LeaderFinder",
    "Reaction",
    "Roster",
    "closed_error",
    "copies",
    "reaction",
]

_LEARNT_MAX = 64
_GROWTH = 1.25
"""Of the waits: a leader that was elected is found a quarter later than it could have been, at most."""
_REDIRECTS_MAX = 2
"""Hints that are followed one after the other without waiting: nodes that know less may name each other."""


@fast_members
class Reaction(Enum):
    """What a client does with an error that a node answers; the table in the module's docstring."""

    FINAL = 1
    """Every node would answer the same: the caller gets the error."""
    LATER = 2
    """Not carried out; the same node may do so in a moment."""
    ELSEWHERE = 3
    """Another node may do it: the one that the error names, or the next one."""
    UNKNOWN = 4
    """The error does not say what became of the request. It is sent again to another node."""


REACTIONS: dict[type[ViewstampError], Reaction] = {
    ViewstampError: Reaction.UNKNOWN,  # also one of a later release, whose class this client does not know
    UnavailableError: Reaction.LATER,
    NotLeaderError: Reaction.ELSEWHERE,
    ClosedError: Reaction.ELSEWHERE,
    NoQuorumError: Reaction.ELSEWHERE,
    RequestError: Reaction.FINAL,
    CommandError: Reaction.FINAL,
    StorageFullError: Reaction.FINAL,
}
"""By class; a class that is not named here reacts as its base class."""


def reaction(error: ViewstampError) -> Reaction:
    """Return what to do about an error that a node answered."""
    return next(REACTIONS[each] for each in type(error).__mro__ if each in REACTIONS)


def copies(error: ViewstampError) -> Callable[..., ViewstampError]:
    """Return a maker of equal errors: one object raised in many tasks would gather all their tracebacks."""
    return lambda *_: copy.copy(error)


def closed_error() -> ViewstampError:
    """Return what a closed client answers."""
    return ClosedError("the client is closed", remedy="open a new one")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedNode:
    """The node that has to answer at an address.

    Attributes:
      node: its name.
      incarnation: of its data directory; "" = the directory has none yet, and only the name is compared.
      file: the settings file that has the address, for messages; "" = none.
      directory: its data directory, for messages.
      directory_id: what no copy of that directory has; "" = not compared.
    """

    node: str
    incarnation: str = ""
    file: str = ""
    directory: str = ""
    directory_id: str = ""


class Roster:
    """Decides which addresses a client may connect to; see the table above. With ``expected`` None, to all."""

    def __init__(self, expected: Mapping[str, ExpectedNode] | None) -> None:
        """Begin.

        Args:
          expected: address to the node that has to answer there; may grow while the client is open. None = no check.
        """
        self._expected = expected
        self._vouched: dict[str, str] = {}
        """Addresses of members outside the directory, and their names."""
        self._named: dict[str, str] = {}
        """Addresses that a node named for a member and that are refused, and the member's name: for messages."""

    def at(self, address: str) -> ExpectedNode | None:
        """Return who has to answer at an address; None = anybody may.

        Raises:
          WrongNodeError: no connection may be opened there.
        """
        if self._expected is None:
            return None
        identity = self._expected.get(address)
        if identity is None and address in self._vouched:
            identity = ExpectedNode(node=self._vouched[address])
        if identity is None:
            raise self._stranger(self._expected, address)
        return identity

    def name(self, address: str) -> str:
        """Return the name of the node that has to answer at an address; "" = anybody may."""
        identity = (self._expected or {}).get(address)
        return identity.node if identity is not None else ""

    def admits(self, address: str) -> bool:
        """Say whether an address that somebody names may be tried."""
        return self._expected is None or address in self._expected or address in self._vouched

    def check_member(self, member: str) -> None:
        """Check that a member, which was not reached, is not at an address that is refused.

        Raises:
          WrongNodeError: it is.
        """
        for address, name in self._named.items():
            if name == name_of(member) and not self.admits(address):
                self.at(address)

    def vouch(self, by: str, at: str, members: Mapping[str, str]) -> None:
        """Take the members that the node ``by``, which was met at the address ``at``, names."""
        if self._expected is None:
            return
        names = {identity.node for identity in self._expected.values()}
        for member, address in members.items():
            name = name_of(member)
            if members.get(by) == at and name not in names:
                self._vouched[address] = name
            elif not self.admits(address):
                self._named[address] = name

    def _stranger(self, expected: Mapping[str, ExpectedNode], address: str) -> WrongNodeError:
        """Return the error for an address that is not of the directory."""
        name = self._named.get(address, "")
        held = next(((at, each) for at, each in expected.items() if each.node == name), None)
        if held is not None:
            what = f"the membership has {name} at {address}, but {held[1].file or 'the directory'} has it at {held[0]}"
        else:
            known = ", ".join(f"{each.node} at {at}" for at, each in expected.items())
            what = f"the membership has {name or 'a member'} at {address}, but the directory has {known}"
        return WrongNodeError(
            f"{what}; nothing was sent to {address}",
            remedy=f"if the directory is a copy, the original is at {address}: to act on that, name it by --cluster "
            f"{address}; if {name or 'the node'} was moved, correct the address in its settings",
        )


class LeaderFinder:
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
