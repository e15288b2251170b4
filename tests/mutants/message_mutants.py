"""Planted mistakes in the checks of a message's source, and in the reaction to a message that breaks a rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.consensus import follower
from viewstamp.consensus.membership import Change, Membership
from viewstamp.consensus.messages import SnapshotOffer
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Core
from viewstamp.ids import NodeId
from viewstamp.node.inbox import FromPeer
from viewstamp.node.peers import identity
from viewstamp.node.peers.pool import PeerPool
from viewstamp.node.replica import Replica

__all__ = ["MESSAGE_MUTANTS"]


def take_from_anybody() -> AbstractContextManager[None]:
    return patched(PeerPool, check_source=lambda self, peer, incarnation: None)


def offer_by_anybody() -> AbstractContextManager[None]:
    def on_snapshot_offer(core: Core, message: SnapshotOffer) -> None:
        if message.end > core.log.commit_end:
            core.output.offer = message

    return patched(follower, on_snapshot_offer=on_snapshot_offer)


def greet_without_a_proof() -> AbstractContextManager[None]:
    """A new member cannot get the vote of one that lacks its record: with one of three down they wait for ever."""
    return patched(PeerPool, _hello_to=lambda self, peer: self._hello)


def leap_terms() -> AbstractContextManager[None]:
    return patched(Raft, _check_newer=lambda self, message: None)


def join_while_heard() -> AbstractContextManager[None]:
    original = identity.joining_change

    def joining_change(
        membership: Membership, member: NodeId, address: str, *, is_heard: Callable[[NodeId], bool]
    ) -> Change | None:
        return original(membership, member, address, is_heard=lambda _: False)

    return everywhere(original, joining_change)


def stop_at_a_broken_rule() -> AbstractContextManager[None]:
    def on_message(self: Replica, item: FromPeer) -> None:
        self.raft.step(item.message)

    return patched(Replica, _on_message=on_message)


MESSAGE_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "take-from-anybody",
            "the source of a consensus message is not checked",
            take_from_anybody,
            rule="design note 0008",
        ),
        Mutant(
            "offer-by-anybody",
            "a snapshot is fetched from a member that does not lead",
            offer_by_anybody,
            rule="rule 19",
        ),
        Mutant(
            "greet-without-a-proof",
            "a member sends no proof to a member that lacks the record of its membership",
            greet_without_a_proof,
            rule="rules 14, 15",
        ),
        Mutant(
            "leap-terms",
            "a member accepts any higher term, even a term higher by more than 2^32",
            leap_terms,
            rule="design note 0008",
        ),
        Mutant(
            "join-while-heard",
            "a node takes the place of a member that still answers",
            join_while_heard,
            rule="rule 18",
        ),
        Mutant(
            "stop-at-a-broken-rule",
            "a message that breaks a rule stops the member that receives it",
            stop_at_a_broken_rule,
            rule="design note 0008",
        ),
    )
}
"""The mutants by name."""
