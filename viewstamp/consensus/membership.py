"""The membership: the voters and learners of a group, as the log records them, and the steps from one to the next.

The membership record is an ordinary record of the log. It is in force on a member from the moment it is in that
member's log until it is cut (protocol rule 15). Its value is JSON with sorted keys.

Every change of voters is joint, even of a single one (Raft paper, section 6). The first record names the new voters
beside the old ones, and from then on a majority of both is needed to elect and to commit. When it is committed, the
leader leaves the joint membership by a second record. A change of learners is one record, because they never count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from viewstamp.errors import PeerError, RequestError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.value_class import value_class

__all__ = ["NOT_MOVED", "AddMember", "Change", "Membership", "MembershipEntry", "Readdressing", "RemoveMember"]


@value_class(kw_only=False)
class AddMember:
    """Add ``node``, which listens at ``address``; if it is a member already, its address changes.

    It begins as a learner. With ``becomes_voter`` the leader promotes it when it has caught up, in the place of the
    voter ``replaces`` (None = beside the others). If ``replaces`` is a learner, it is removed at once, and ``node``
    takes over its planned promotion, if it has one.
    """

    node: NodeId
    address: str
    becomes_voter: bool = True
    replaces: NodeId | None = None


@value_class(kw_only=False)
class RemoveMember:
    """Remove ``node``, a voter or a learner."""

    node: NodeId


Change = AddMember | RemoveMember


@dataclass(frozen=True)
class Membership:
    """The voters and the learners of a group, each with the address where it listens.

    ``generation`` counts the changes, for people and logs. No message is refused because of it, because a member that
    lacks the newest record would refuse the append that brings it. ``outgoing`` are the voters before the change while
    the membership is joint, {} = it is not. ``joining`` are the learners that are to become voters, each with the voter
    that it replaces ("" = beside the others). ``incarnations`` name the disk of each member that has been met: a
    process with another disk is not that member.
    """

    voters: dict[NodeId, str]
    learners: dict[NodeId, str] = field(default_factory=dict)
    generation: int = 0
    outgoing: dict[NodeId, str] = field(default_factory=dict)
    joining: dict[NodeId, str] = field(default_factory=dict)
    incarnations: dict[NodeId, str] = field(default_factory=dict)

    # -- Members ---------------------------------------------------------------------------------------------

    @property
    def is_joint(self) -> bool:
        """Whether a majority of the voters before the change is needed too."""
        return bool(self.outgoing)

    @cached_property
    def electors(self) -> dict[NodeId, str]:
        """The members that may vote and stand: the voters, and while joint those before the change."""
        return {**self.outgoing, **self.voters}

    @cached_property
    def addresses(self) -> dict[NodeId, str]:
        """Every member's address, electors before learners, each group in the order of its ids."""
        return {**dict(sorted(self.electors.items())), **dict(sorted(self.learners.items()))}

    @cached_property
    def has_only_voters(self) -> bool:
        """Whether every member counts alike, because there is no learner and no change is under way."""
        return not self.learners and not self.outgoing

    @cached_property
    def names_all_disks(self) -> bool:
        """Whether ``has_only_voters``, and the disk of each of them is named."""
        return self.has_only_voters and self.incarnations.keys() >= self.voters.keys()

    # -- Changing --------------------------------------------------------------------------------------------

    def changed(self, change: Change) -> Membership:
        """Return the next membership, or this one if there is nothing to change. This one must not be joint.

        Raises:
          RequestError: the change is impossible, for example for an unknown member or the last voter.
        """
        assert not self.is_joint, "one change at a time"
        return self._added(change) if isinstance(change, AddMember) else self._removed(change.node)

    def promoted(self, learner: NodeId) -> Membership:
        """Return the joint membership in which a joining learner is a voter, in the place that ``joining`` gives."""
        voters = {**self.voters, learner: self.learners[learner]}
        voters.pop(NodeId(self.joining[learner]), None)
        return self._next(
            voters=voters,
            learners=_without(self.learners, learner),
            joining=_without(self.joining, learner),
        )

    def left(self) -> Membership:
        """Return the membership after a joint one, in which only the voters after the change count."""
        return replace(self, outgoing={}, generation=self.generation + 1).naming({})

    def at(self, addresses: Mapping[NodeId, str]) -> Membership:
        """Return this membership with other addresses for some of its members."""
        voters, outgoing, learners = (
            {member: addresses.get(member, address) for member, address in members.items()}
            for members in (self.voters, self.outgoing, self.learners)
        )
        return replace(self, voters=voters, outgoing=outgoing, learners=learners)

    def naming(self, incarnations: Mapping[NodeId, str]) -> Membership:
        """Return this membership with the disk names of ``incarnations`` added, and without those of other nodes.

        A name that is known already stays. If nothing changes, this object itself is returned.
        """
        if self.incarnations.keys() == self.addresses.keys():
            return self  # The usual case, which a leader checks in every tick.
        known = {**incarnations, **self.incarnations}
        named = {member: known[member] for member in self.addresses if member in known}
        return self if named == self.incarnations else replace(self, incarnations=named)

    def _added(self, change: AddMember) -> Membership:
        node, address = change.node, change.address
        if node in self.voters:
            if change.replaces:
                raise RequestError(f"{node} is a voter already", remedy="name a new node, which is not a member yet")
            if not change.becomes_voter:
                raise RequestError(
                    f"{node} is a voter, and a voter does not become a learner",
                    remedy="remove it, and add a node under another name as a learner",
                )
            same = self.voters[node] == address
            return self if same else self._next(voters={**self.voters, node: address})
        replaced = change.replaces or ""
        if replaced in self.learners:
            place = {node: self.joining[NodeId(replaced)]} if replaced in self.joining else {}
            return self._next(
                learners={**_without(self.learners, NodeId(replaced)), node: address},
                joining={**_without(self.joining, NodeId(replaced)), **place},
            )
        if replaced and replaced not in self.voters:
            raise RequestError(
                f"{replaced} is no voter or learner; these are: {', '.join(self.addresses)}",
                remedy="name the member that the new one replaces",
            )
        joining = {**self.joining, node: replaced} if change.becomes_voter else _without(self.joining, node)
        if self.learners.get(node) == address and joining == self.joining:
            return self
        return self._next(learners={**self.learners, node: address}, joining=joining)

    def _removed(self, node: NodeId) -> Membership:
        if node in self.learners:
            return self._next(learners=_without(self.learners, node), joining=_without(self.joining, node))
        if node not in self.voters:
            raise RequestError(
                f"{node} is no member: {', '.join(self.addresses)}",
                remedy="name a member: see `viewstamp members list`",
            )
        if len(self.voters) == 1:
            raise RequestError(f"{node} is the last voter", remedy="add another member first")
        return self._next(voters=_without(self.voters, node))

    def _next(
        self,
        *,
        voters: dict[NodeId, str] | None = None,
        learners: dict[NodeId, str] | None = None,
        joining: dict[NodeId, str] | None = None,
    ) -> Membership:
        voters = self.voters if voters is None else voters
        return Membership(
            voters,
            self.learners if learners is None else learners,
            self.generation + 1,
            self.voters if voters.keys() != self.voters.keys() else {},
            self.joining if joining is None else joining,
            self.incarnations,
        ).naming({})

    # -- The record ------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the value of the membership record."""
        return json.dumps(self.to_wire(), sort_keys=True).encode()

    def to_wire(self) -> dict[str, object]:
        """Return the fields as plain values."""
        fields: dict[str, object] = {
            "generation": self.generation,
            "learners": self.learners,
            "voters": self.voters,
        }
        if self.outgoing:
            fields["outgoing"] = self.outgoing
        if self.joining:
            fields["joining"] = self.joining
        if self.incarnations:
            fields["incarnations"] = self.incarnations
        return fields

    def shown(self) -> dict[str, object]:
        """Return the fields for clients, without incarnations, because with them a process could pose as a member."""
        return {name: value for name, value in self.to_wire().items() if name != "incarnations"}

    @classmethod
    def decode(cls, value: bytes) -> Membership:
        """Read the value of a membership record.

        Raises:
          PeerError: ``value`` is no membership record.
        """
        try:
            fields = json.loads(value)
            voters, learners, outgoing, joining, incarnations = (
                {NodeId(str(node)): str(text) for node, text in dict(found).items()}
                for found in (
                    fields["voters"],
                    fields["learners"],
                    fields.get("outgoing", {}),
                    fields.get("joining", {}),
                    fields.get("incarnations", {}),
                )
            )
            if not joining.keys() <= learners.keys():
                raise ValueError("a joining member is no learner")
            return cls(voters, learners, int(fields["generation"]), outgoing, joining, incarnations)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise PeerError(f"no membership record: {value[:100]!r}") from error


@value_class(kw_only=False)
class MembershipEntry:
    """A membership and its position in the log; (0, 0) = the hint of the settings, before any record."""

    index: Index
    term: Term
    membership: Membership


@value_class(kw_only=False)
class Readdressing:
    """Addresses that an operator set while no majority could commit them; stored on this member's disk.

    They replace the addresses in memberships up to ``generation``. The next leader writes the membership in force into
    the log, with these addresses, so all members get them. A later change has a higher generation and is not affected.
    """

    generation: int = -1
    addresses: Mapping[NodeId, str] = field(default_factory=dict)

    def entry(self, entry: MembershipEntry) -> MembershipEntry:
        """Return a membership as it is in force on this member."""
        if not self.addresses or entry.membership.generation > self.generation:
            return entry
        return replace(entry, membership=entry.membership.at(self.addresses))


NOT_MOVED = Readdressing()


def _without(members: Mapping[NodeId, str], node: NodeId) -> dict[NodeId, str]:
    return {member: text for member, text in members.items() if member != node}
