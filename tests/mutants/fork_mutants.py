"""Planted mistakes in forks, and in the addresses that an operator sets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.consensus.membership import MembershipEntry, Readdressing
from viewstamp.fork import judge
from viewstamp.fork.build import Blueprint
from viewstamp.fork.fork import NewMember
from viewstamp.fork.judge import Basis, ForkSource, GroupSource
from viewstamp.fork.loss import PossibleLoss
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Term
from viewstamp.node import data_dir
from viewstamp.node.fork_mark import ForkMark
from viewstamp.node.placement_queries import PlacedGroup
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.machine import Streams
from viewstamp.streams.order import Order
from viewstamp.wire.batch import Batch

__all__ = ["FORK_MUTANTS"]

forking = import_module("viewstamp.fork.fork")  # The package has a function of this name.


def fork_in_an_old_term() -> AbstractContextManager[None]:
    original = forking._blueprint

    def blueprint(source: ForkSource, *arguments: Any) -> Blueprint:
        return replace(original(source, *arguments), term=Term(source.last_term + 1))

    return patched(forking, _blueprint=blueprint)


def fork_with_the_old_disks() -> AbstractContextManager[None]:
    original = forking._blueprint

    def blueprint(source: ForkSource, *arguments: Any) -> Blueprint:
        made = original(source, *arguments)
        same = dict.fromkeys(made.membership.incarnations, "same")
        return replace(made, membership=replace(made.membership, incarnations=same))

    return patched(forking, _blueprint=blueprint)


def fork_keeps_sessions() -> AbstractContextManager[None]:
    return patched(Streams, _apply_fork=lambda self, batch: {})


def fork_of_any_log() -> AbstractContextManager[None]:
    original = judge._choose

    def choose(disk: Disk, replicas: Sequence[Any], basis: Basis) -> Any:
        return original(disk, replicas, Basis.SURVIVORS)

    return patched(judge, _choose=choose)


def fork_without_marks() -> AbstractContextManager[None]:
    place = ForkMark.place

    def place_if_decided(self: ForkMark, disk: Disk, directory: str) -> None:
        if self.is_decided:
            place(self, disk, directory)

    return patched(ForkMark, place=place_if_decided)


def start_on_half_a_fork() -> AbstractContextManager[None]:
    return patched(data_dir, check_not_forking=lambda disk, directory: None)


def recover_promises_everything() -> AbstractContextManager[None]:
    original = PossibleLoss.__init__

    def init(self: PossibleLoss, **fields: Any) -> None:
        original(self, **{**fields, "acknowledged": False})

    return patched(PossibleLoss, __init__=init)


def count_who_has_left() -> AbstractContextManager[None]:
    """A recovery takes the old directory of a node that has left a group for that of a member."""
    original = judge._judge_groups

    def judge_groups(*arguments: Any) -> list[GroupSource]:
        found = original(*arguments)
        for each in found:
            each.source.left = frozenset()
        return found

    return patched(judge, _judge_groups=judge_groups)


def fork_on_the_founders() -> AbstractContextManager[None]:
    """A fork places a group on its founders again, and not on its hosts."""
    original = forking._founders

    def founders(placed: PlacedGroup, members: Sequence[NewMember]) -> list[NewMember]:
        return original(replace(placed, added={}, leaving=(), left=()), members)

    return patched(forking, _founders=founders)


def readdress_for_ever() -> AbstractContextManager[None]:
    def entry(self: Readdressing, entry: MembershipEntry) -> MembershipEntry:
        return replace(entry, membership=entry.membership.at(self.addresses)) if self.addresses else entry

    return patched(Readdressing, entry=entry)


def fork_forgets_the_order() -> AbstractContextManager[None]:
    original = Ledger._fork

    def fork(self: Ledger, batch: Batch) -> Any:
        self.state.order = Order()
        return original(self, batch)

    return patched(Ledger, _fork=fork)


def fork_of_committed_groups() -> AbstractContextManager[None]:
    """A group begins with what one member knows to be committed, which may lack records that the order names."""
    original = judge.judge_source

    def judge_source(disk: Disk, sources: Sequence[str], **more: Any) -> ForkSource:
        return original(disk, sources, **{**more, "basis": Basis.COMMITTED})

    return patched(judge, judge_source=judge_source)


def fork_leaves_groups_in_place() -> AbstractContextManager[None]:
    """The files of groups are not moved: the old ones stay, and the new ones stay where they were written."""
    return patched(forking, directories_of_groups=lambda disk, directory: {})


FORK_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "fork-in-an-old-term",
            "the new records are in a term above those of the kept records only",
            fork_in_an_old_term,
            rule="§10a",
        ),
        Mutant(
            "fork-forgets-the-order",
            "a new cluster with groups gives positions anew, from 1 on",
            fork_forgets_the_order,
            rule="§10a",
        ),
        Mutant(
            "fork-of-committed-groups",
            "a group begins with the part that one member knows to be committed",
            fork_of_committed_groups,
            rule="§10a",
        ),
        Mutant(
            "fork-leaves-groups-in-place",
            "the files of groups are not moved",
            fork_leaves_groups_in_place,
            rule="§10a",
        ),
        Mutant(
            "fork-with-the-old-disks",
            "the new members have one incarnation",
            fork_with_the_old_disks,
            rule="§10a",
        ),
        Mutant(
            "fork-keeps-sessions",
            "a client of the old cluster gets results from the new one",
            fork_keeps_sessions,
            rule="§10a",
        ),
        Mutant(
            "fork-of-any-log",
            "a fork takes the log of a minority",
            fork_of_any_log,
            rule="§10a",
        ),
        Mutant(
            "fork-without-marks",
            "a directory has no mark until its own fork is decided",
            fork_without_marks,
            rule="§10a",
        ),
        Mutant(
            "start-on-half-a-fork",
            "a node starts although a fork of its directory is unfinished",
            start_on_half_a_fork,
            rule="§10a",
        ),
        Mutant(
            "recover-promises-everything",
            "a recovery from a minority reports that nothing acknowledged is lost",
            recover_promises_everything,
            rule="§10a",
        ),
        Mutant(
            "count-who-has-left",
            "a recovery counts a node that has left a group as a member of it",
            count_who_has_left,
            rule="§7",
        ),
        Mutant("fork-on-the-founders", "a fork places a group on its founders again", fork_on_the_founders, rule="§7"),
        Mutant(
            "readdress-for-ever",
            "an operator's addresses replace those of later committed changes",
            readdress_for_ever,
            rule="§10a",
        ),
    )
}
"""The mutants by name."""
