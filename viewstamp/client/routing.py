"""Routing: the addresses that a client knows, the order in which it tries them, and its reaction to each error.

Pure: no connection, clock or event loop. The reaction to an error is decided here for all parts of a client:

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
StorageFullError unsent batches fail too, because they need the same space. A refusal by a former leader
leaves a batch in doubt, because an earlier attempt may have reached that node's log.

The nodes that a caller expects
-------------------------------
A copy of a cluster's directory holds the same cluster id, node ids and incarnations as the original, and its nodes
name the original's addresses as the members'. A client that followed those addresses would act on the original. So a
caller that names a directory sets ``ClientOptions.expected``, and the client compares before it sends anything
but HELLO:

| the node that answers | is accepted |
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
    WrongClusterError,
    WrongNodeError,
)
from viewstamp.ids import ClusterId, name_of

__all__ = [
    "REACTIONS",
    "Addresses",
    "Directories",
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
"""Factor between waits. So a new leader is found at most a quarter later than possible."""
_REDIRECTS_MAX = 2
"""Hints that are followed without waiting, one after the other. Bounded, because outdated nodes may name each other."""


@fast_members
class Reaction(Enum):
    """The reaction of a client to an error that a node answers; the table in the module's docstring."""

    FINAL = 1
    """Every node would answer the same: the caller gets the error."""
    LATER = 2
    """Not carried out; the same node may accept the request in a moment."""
    ELSEWHERE = 3
    """Another node may accept the request: the one that the error names, or the next one."""
    UNKNOWN = 4
    """The request may have been carried out. It is sent again to another node."""


REACTIONS: dict[type[ViewstampError], Reaction] = {
    ViewstampError: Reaction.UNKNOWN,  # also an error of a later release that this client has no class for
    UnavailableError: Reaction.LATER,
    NotLeaderError: Reaction.ELSEWHERE,
    ClosedError: Reaction.ELSEWHERE,
    NoQuorumError: Reaction.ELSEWHERE,
    RequestError: Reaction.FINAL,
    CommandError: Reaction.FINAL,
    StorageFullError: Reaction.FINAL,
}
"""By class; a class that is not listed has the reaction of its base class."""


def reaction(error: ViewstampError) -> Reaction:
    """Return the reaction to an error that a node answered."""
    return next(REACTIONS[each] for each in type(error).__mro__ if each in REACTIONS)


def copies(error: ViewstampError) -> Callable[..., ViewstampError]:
    """Return a function that makes equal errors, because one object raised in many tasks would collect tracebacks."""
    return lambda *_: copy.copy(error)


def closed_error() -> ViewstampError:
    """Return the error of calls to a closed client."""
    return ClosedError("the client is closed", remedy="open a new one")


class Addresses:
    """The addresses that a client tries in one group.

    A node may have been removed long ago, or have outdated settings. So the members that it names count only if no
    newer membership is known. Members of equal generations are merged.

    Invariants:
      * a given address is never dropped, as long as it is given
      * of the learnt addresses those of the newest membership are kept, at most ``_LEARNT_MAX``
    """

    def __init__(self, given: Sequence[str] | Addresses, admits: Callable[[str], bool] = lambda address: True) -> None:
        """Begin.

        Args:
          given: the addresses that the caller named; or, for another group than 0, those of group 0 as they change.
          admits: returns whether another address may be learnt.
        """
        self.generation = 0
        """Generation of the newest membership that a node has named."""
        self._group_0 = given if isinstance(given, Addresses) else None
        self._all = [] if isinstance(given, Addresses) else list(dict.fromkeys(given))
        self._named = self._all
        self._admits = admits
        self._learnt: dict[str, str] = {}
        """Address to the member's id; "" = unknown."""
        self._met: dict[str, str] = {}
        """Given address to the node that answered there last. A member may have more than one address."""

    @property
    def all(self) -> list[str]:
        """Every address, the given ones first. Never changed in place."""
        if self._group_0 is None:
            return self._all
        return list(dict.fromkeys([*self._given, *self._all]))

    @property
    def _given(self) -> list[str]:
        return self._named if self._group_0 is None else self._group_0.all

    def learn(self, members: Mapping[str, str], generation: int) -> None:
        """Store the members that a node names (id to address), unless a newer membership is known."""
        if generation < self.generation:
            return
        if generation > self.generation:
            self.generation, self._learnt = generation, {}
        for member, address in members.items():
            if address and self._admits(address) and (address in self._learnt or len(self._learnt) < _LEARNT_MAX):
                self._learnt[address] = member
        self._all = list(dict.fromkeys([*self._named, *self._learnt]))

    def meet(self, address: str, node: str) -> None:
        """Store which node answers at an address."""
        if address in self._given:
            self._met[address] = node

    def is_member(self, address: str) -> bool:
        """Return whether the address may be a member's. True for each, as long as no member is known."""
        return not self._learnt or address in self._learnt or self._met.get(address) in self._learnt.values()

    def name(self, address: str) -> str:
        """Return the name of the node at an address; if it is not known, the address."""
        if (known := self._learnt.get(address) or self._met.get(address)) or self._group_0 is None:
            return name_of(known or address)
        return self._group_0.name(address)

    def of(self, node: str) -> list[str]:
        """Return every address, those of the member with this id or name first."""
        return sorted(self.all, key=lambda address: not self._is_of(address, node))

    def _is_of(self, address: str, node: str) -> bool:
        known = self._learnt.get(address) or self._met.get(address, "")
        return bool(known) and node in (known, name_of(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedNode:
    """The node that has to answer at an address.

    Attributes:
      node: its name.
      incarnation: of its data directory; "" = the directory has none yet, so that only the name is compared.
      file: the settings file that has the address, for messages; "" = none.
      directory: its data directory, for messages.
      directory_id: an id that a copy of that directory does not have; "" = not compared.
    """

    node: str
    incarnation: str = ""
    file: str = ""
    directory: str = ""
    directory_id: str = ""


class Directories(tuple[tuple[str, str], ...]):
    """Nodes whose data directories the caller can read, and their incarnations. ``repr`` shows the nodes only."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Directories {', '.join(node for node, _ in self)}>"


class Roster:
    """Decides which nodes a client may talk to, in all groups; see the table above. With ``expected`` None, any."""

    def __init__(self, expected: Mapping[str, ExpectedNode] | None, cluster_id: str = "") -> None:
        """Begin.

        Args:
          expected: address to the node that has to answer there; may grow while the client is open. None = no check.
          cluster_id: the only cluster to talk to; "" = the cluster of the first node that answers.
        """
        self.cluster_id = ClusterId(cluster_id)
        """The cluster of every connection, in all groups; "" = none was opened yet."""
        self._expected = expected
        self._vouched: dict[str, str] = {}
        """Addresses of members outside the directory, and their names."""
        self._named: dict[str, str] = {}
        """Refused addresses that a node named for a member, and the member's name; for messages."""

    def at(self, address: str) -> ExpectedNode | None:
        """Return the node that has to answer at an address; None = any node may.

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

    def check_cluster(self, address: str, cluster: str) -> None:
        """Check the cluster of a node that has answered; the first one decides. Raises WrongClusterError."""
        if not self.cluster_id:
            self.cluster_id = ClusterId(cluster)
        elif cluster != self.cluster_id:
            raise WrongClusterError(
                f"{address} belongs to cluster {cluster!r}, but this client talks to {self.cluster_id!r}",
                remedy="check the addresses: all of them must be nodes of one cluster",
            )

    @property
    def directories(self) -> Directories:
        """The nodes whose directories the caller can read."""
        known = (self._expected or {}).values()
        return Directories((each.node, each.incarnation) for each in known if each.incarnation)

    def name(self, address: str) -> str:
        """Return the name of the node that has to answer at an address; "" = any node may."""
        identity = (self._expected or {}).get(address)
        return identity.node if identity is not None else ""

    def admits(self, address: str) -> bool:
        """Return whether an address that a node names may be tried."""
        return self._expected is None or address in self._expected or address in self._vouched

    def check_member(self, member: str) -> None:
        """Check whether an unreachable member is at an address to which no connection may be opened.

        Raises:
          WrongNodeError: it is.
        """
        for address, name in self._named.items():
            if name == name_of(member) and not self.admits(address):
                self.at(address)

    def vouch(self, by: str, at: str, members: Mapping[str, str]) -> None:
        """Store the members that the node ``by`` at the address ``at`` names."""
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
        """Return the error for an address that the directory does not have."""
        name = self._named.get(address, "")
        held = next(((at, each) for at, each in expected.items() if each.node == name), None)
        if held is not None:
            what = f"the membership has {name} at {address}, but {held[1].file or 'the directory'} has it at {held[0]}"
        else:
            known = ", ".join(f"{each.node} at {at}" for at, each in expected.items())
            what = f"the membership has {name or 'a member'} at {address}, but the directory has {known}"
        return WrongNodeError(
            f"{what}; nothing was sent to {address}",
            remedy=f"if the directory is a copy, the original is at {address}: use --cluster {address} to act on "
            f"the original; if {name or 'the node'} was moved, correct the address in its settings",
        )


class LeaderFinder:
    """Chooses the address to try next: round after round over the known ones, or the one that a hint names.

    Invariants:
      * within a round each address is tried once, those of members first
      * a hint is followed once; a hint to an unreachable address is followed once in two rounds
      * ``delay`` is 0 only after the first failure, for ``_REDIRECTS_MAX`` hints in a row, and after an attempt that
        had no answer if the round has more addresses
    """

    def __init__(self, addresses: Addresses, *, entropy: random.Random, back_off: tuple[float, float]) -> None:
        self.addresses = addresses
        self.last_error: ViewstampError | None = None
        """Why the latest attempt failed; None = it did not."""
        self._entropy = entropy
        self._back_off = back_off
        self._at = entropy.randrange(len(addresses.all))
        """The member at which the round begins. Each round begins at another one."""
        self._round: list[str] = []
        """The addresses left in this round, in reverse order."""
        self._generation = addresses.generation
        """Generation of the membership of this round."""
        self._hint: str | None = None
        self._away: str | None = None
        self._ignored = 0
        """Hints to ``_away`` that were not followed."""
        self._failures = 0
        self._waits = 0
        self._redirects = 0
        self._goes_on = False
        """Whether the next address is tried at once, because the latest attempt reached no node and cost none."""
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
        """Record that an attempt at ``address`` failed; ``is_away`` = no node answered there."""
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
                # Followers name a dead leader until they elect another one, so that hint is mostly ignored.
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
        """Record that the leader was found and has answered."""
        self.last_error = None
        self._failures = 0
        self._waits = 0
        self._redirects = 0
        self._away = None
        self._round = []

    @property
    def strangers(self) -> PeerError | None:
        """The latest error, if a server that is no node of the cluster answers at every known address; else None."""
        if self._strangers and all(address in self._strangers for address in self.addresses.all):
            return next(reversed(self._strangers.values()))
        return None

    def delay(self) -> float:
        """Return the seconds to wait before the next attempt. Called once for each attempt."""
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
