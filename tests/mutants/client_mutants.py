"""Planted mistakes in the identification of nodes, clusters and directories, and in a client's reaction to errors."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.mutants.mutants import Mutant, patched
from viewstamp.client import identity, routing
from viewstamp.client.routing import REACTIONS, Reaction, Roster
from viewstamp.client.session import Session
from viewstamp.local import cluster
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.target import ClusterTarget
from viewstamp.node import node

__all__ = ["CLIENT_MUTANTS"]


def ask_anybody() -> AbstractContextManager[None]:
    return patched(Roster, at=lambda self, address: None, admits=lambda self, address: True)


def forget_identities() -> AbstractContextManager[None]:
    def target(self: LocalCluster) -> ClusterTarget:
        return ClusterTarget([node.address for node in self.nodes.values()], self.id)

    return patched(LocalCluster, target=property(target))


def take_a_copy() -> AbstractContextManager[None]:
    return patched(identity, _directory_elsewhere=lambda *_: "")


def count_any_process() -> AbstractContextManager[None]:
    return patched(cluster, is_process_of=lambda node, status: True)


def start_anywhere() -> AbstractContextManager[None]:
    async def check_address(*_: object) -> None:
        pass

    return patched(node, check_address=check_address)


def back_off_for_ever() -> AbstractContextManager[None]:
    """A client that has lost acknowledged batches sends the next batch again and again."""
    return patched(Session, _prove=Session._back_off)


def ask_again_for_what_is_final() -> AbstractContextManager[None]:
    """An error that every node would return is treated as if it left the outcome open."""
    unknown = {each: Reaction.UNKNOWN if found is Reaction.FINAL else found for each, found in REACTIONS.items()}
    return patched(routing, REACTIONS=unknown)


CLIENT_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("ask-anybody", "a client asks nodes that its caller does not expect", ask_anybody, rule="§10a"),
        Mutant(
            "forget-identities",
            "a command with --dir does not check which node answers",
            forget_identities,
            rule="§10a",
        ),
        Mutant("take-a-copy", "a command on a copy of a directory reaches the original", take_a_copy, rule="§10a"),
        Mutant(
            "count-any-process",
            "a start counts processes of other directories as RUNNING",
            count_any_process,
            rule="§10a",
        ),
        Mutant(
            "back-off-for-ever",
            "a session whose acknowledged batches are gone is refused for ever",
            back_off_for_ever,
            rule="interval",
        ),
        Mutant(
            "ask-again-for-what-is-final",
            "a request that is wrong is sent to one node after the other",
            ask_again_for_what_is_final,
            rule="§10",
        ),
        Mutant("start-anywhere", "a node starts where the membership does not have it", start_anywhere, rule="§10a"),
    )
}
"""The mutants by name."""
