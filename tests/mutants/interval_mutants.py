"""Planted mistakes of interval mode: the running mark, votes of members that lost power, and committed records cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.consensus import follower, standing
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import Announcement
from viewstamp.consensus.state import Core
from viewstamp.host.blocking import in_thread
from viewstamp.ids import Index, NodeId
from viewstamp.node import running_mark
from viewstamp.node.group import Group
from viewstamp.node.health import digests
from viewstamp.node.health.digests import Digests
from viewstamp.node.parts import Parts
from viewstamp.wal import writer
from viewstamp.wal.control_file import ControlState
from viewstamp.wire.batch import Kind

__all__ = ["INTERVAL_MUTANTS"]


def no_running_mark() -> AbstractContextManager[None]:
    def mark_started(state: ControlState, boot_id: str, *, is_interval: bool) -> ControlState:
        return state

    return everywhere(running_mark.mark_started, mark_started)


def mark_cleared_before_sync() -> AbstractContextManager[None]:
    original = Group._close_files

    async def close_files(self: Group, parts: Parts | None) -> None:
        if parts is not None:
            await in_thread(parts.log_store.mark_stopped)
        await original(self, parts)

    return patched(Group, _close_files=close_files)


def count_recovering_votes() -> AbstractContextManager[None]:
    def wins(
        membership: Membership, votes: Iterable[NodeId], recovering: Collection[NodeId], *, has_waited: bool
    ) -> bool:
        return standing.is_majority(membership, set(votes))

    return patched(standing, wins=wins)


def wait_for_unnamed() -> AbstractContextManager[None]:
    return patched(standing, may_have_acknowledged=lambda membership: set(membership.electors))


def commit_by_an_older_name() -> AbstractContextManager[None]:
    """A disk counts by a record of an older term that is not committed."""
    real = standing.commit_end

    def commit_end(*args: Any, committed: Index, **named: Any) -> Index:
        return real(*args, committed=Index(1 << 62), **named)

    return patched(standing, commit_end=commit_end)


def end_of_another_life() -> AbstractContextManager[None]:
    def bound_recovery(self: Core, announcement: Announcement) -> None:
        if self.recovering_until is not None and announcement.life and self.recovering_until[0] == self.term:
            self.recovering_until = min(self.recovering_until, (self.term, announcement.leader_end))

    return patched(Core, bound_recovery=bound_recovery)


def cut_instead_of_set_aside() -> AbstractContextManager[None]:
    original = follower.on_announcement

    def on_announcement(core: Core, message: Announcement) -> None:
        start = follower._continue_from(core, message)
        is_new = message.number > core.announced_number
        if is_new and start is not None and start == message.start < core.log.commit_end:
            core.log.commit_end = core.log.handed_end = start
        original(core, message)

    return patched(follower, on_announcement=on_announcement)


def lose_names() -> AbstractContextManager[None]:
    return patched(writer, _INTERVAL_KINDS=frozenset(Kind))


def judge_at_once() -> AbstractContextManager[None]:
    return patched(digests, _PATIENCE_LOOKS=0)


def confirm_by_old_agreements() -> AbstractContextManager[None]:
    """A member that agreed before the state of the leader became wrong confirms that state."""
    confirmed = Digests._is_confirmed

    def is_confirmed(self: Digests, membership: Membership, agreeing: Mapping[NodeId, Index], end: Index) -> bool:
        return confirmed(self, membership, agreeing, Index(0))

    return patched(Digests, _is_confirmed=is_confirmed)


INTERVAL_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("no-running-mark", "a run in interval mode leaves no mark", no_running_mark, rule="interval, rule 17"),
        Mutant(
            "mark-cleared-before-sync",
            "a clean stop clears the running mark before the log is synced",
            mark_cleared_before_sync,
            rule="interval, rule 17",
        ),
        Mutant(
            "count-recovering-votes",
            "votes of members that lost power count like any other",
            count_recovering_votes,
            rule="interval, rule 17",
        ),
        Mutant(
            "wait-for-unnamed",
            "after a power loss an election waits for a voter whose disk no record names",
            wait_for_unnamed,
            rule="interval, rule 18",
        ),
        Mutant(
            "commit-by-an-older-name",
            "a disk counts by a record of an older term that is not committed",
            commit_by_an_older_name,
            rule="interval, rule 18",
        ),
        Mutant(
            "end-of-another-life",
            "a leader's end from before the power loss ends the recovery",
            end_of_another_life,
            rule="interval, rule 17",
        ),
        Mutant(
            "cut-instead-of-set-aside",
            "in interval mode a member cuts below its own commit end and keeps its log",
            cut_instead_of_set_aside,
            rule="interval, rule 4",
        ),
        Mutant(
            "lose-names",
            "in interval mode sessions and topics are acknowledged before they are durable",
            lose_names,
            rule="interval",
        ),
        Mutant(
            "judge-at-once",
            "a leader decides alone about a member that differs, before others have reported",
            judge_at_once,
            rule="digests",
        ),
        Mutant(
            "confirm-by-old-agreements",
            "a member that agreed before the leader's state became wrong confirms that state",
            confirm_by_old_agreements,
            rule="digests",
        ),
    )
}
