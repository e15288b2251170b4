"""Planted mistakes in commits that followers find by themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, cast

from tests.mutants.mutants import Mutant, both, patched
from viewstamp.consensus import follower, leader, reads, standing
from viewstamp.consensus.messages import DurableNotice, Message
from viewstamp.consensus.state import Campaign, Core, Following, Leading
from viewstamp.ids import Index, NodeId
from viewstamp.node.peers.connection import PeerConnection
from viewstamp.node.peers.pool import PeerPool
from viewstamp.node.replica import Replica

__all__ = ["NOTICE_MUTANTS"]


def _finding(
    *,
    own: Callable[[Core], Index] = lambda core: core.log.durable_end,
    counts: Callable[[Core], bool] = lambda core: core.recovering_until is None,
    begin: Callable[[Core], Index] = lambda core: core.history.begin_of(core.term) or Index(0),
    commits: Callable[[Core, dict[NodeId, Index], Index], Index] | None = None,
) -> AbstractContextManager[None]:
    """Replace ``follower._find_commit`` by one with a mistake."""

    def by_the_rule(core: Core, ends: dict[NodeId, Index], start: Index) -> Index:
        return standing.commit_end(
            core.memberships,
            ends,
            start,
            disks_are_named=bool(core.incarnations),
            committed=core.log.commit_end,
            term=core.term,
        )

    def find(core: Core) -> None:
        log = core.log
        if core.leader is None or not counts(core) or core.options.may_lose_acknowledged:
            return
        end = min(core.leader_durable_end, own(core))
        end = (commits or by_the_rule)(core, {core.leader: end, core.me: end}, begin(core))
        if end > log.commit_end and log.is_boundary(end):
            core.ahead_end = end
            follower.take_commit(core, end)

    return patched(follower, _find_commit=find)


def find_before_sync() -> AbstractContextManager[None]:
    return _finding(own=lambda core: core.log.end)


def find_below_the_term() -> AbstractContextManager[None]:
    return _finding(begin=lambda core: Index(0))


def find_without_a_quorum() -> AbstractContextManager[None]:
    return _finding(commits=lambda core, ends, start: end if (end := min(ends.values())) >= start else Index(0))


def find_while_recovering() -> AbstractContextManager[None]:
    return _finding(counts=lambda core: True)


def tell_before_sync() -> AbstractContextManager[None]:
    """A leader tells the end of its log instead of its durable end."""

    def send(core: Core, leading: Leading) -> None:
        for member in list(leading.notices):
            end, progress = core.log.end, leading.progress[member]
            del leading.notices[member]
            leading.told_end = max(leading.told_end, end)
            core.output.messages.append(
                DurableNotice(source=core.me, target=member, term=core.term, number=progress.number, end=end)
            )

    return patched(leader, _send_notices=send)


def believe_the_leader_before() -> AbstractContextManager[None]:
    """A follower keeps what the leader of an older term has told."""
    original = Core.become

    def become(self: Core, state: Following | Campaign | Leading) -> None:
        told = self.leader_durable_end
        original(self, state)
        self.leader_durable_end = told

    return patched(Core, become=become)


def read_without_what_was_told() -> AbstractContextManager[None]:
    """The index of a read covers what the leader knows to be committed, and not what a member may have found."""
    original = reads.start_round

    def start_round(core: Core, leading: Leading) -> None:
        told, leading.told_end = leading.told_end, Index(0)
        original(core, leading)
        leading.told_end = told

    return patched(reads, start_round=start_round)


def read_before_the_commit() -> AbstractContextManager[None]:
    """A read is released when a quorum has confirmed the leader, with an index that may not be committed yet."""
    original = reads.confirm

    def confirm(core: Core, leading: Leading) -> None:
        commit_end, core.log.commit_end = core.log.commit_end, core.log.end
        try:
            original(core, leading)
        finally:
            core.log.commit_end = commit_end

    return patched(reads, confirm=confirm)


def tell_a_majority_of_none() -> AbstractContextManager[None]:
    """A leader in interval mode tells, and its members believe it, although nothing is synced there."""
    tell, find = leader.tell_durable_end, follower._find_commit

    def as_synced(call: Callable[..., None]) -> Callable[..., None]:
        def called(core: Core, *arguments: Any) -> None:
            options = core.options
            core.options = cast("Any", _Synced(options))
            try:
                call(core, *arguments)
            finally:
                core.options = options

        return called

    return both(patched(leader, tell_durable_end=as_synced(tell)), patched(follower, _find_commit=as_synced(find)))


class _Synced:
    """Options that say that a log is synced."""

    may_lose_acknowledged = False

    def __init__(self, options: object) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)


def notify_older_releases() -> AbstractContextManager[None]:
    """A notice is sent to a member that did not say that it reads notices."""
    original = PeerPool.send

    def send(self: PeerPool, message: Message) -> None:
        link: PeerConnection | None = self._links.get(message.target)
        if link is not None:
            link.takes_notices = True
        original(self, message)

    return patched(PeerPool, send=send)


def notices_not_sent() -> AbstractContextManager[None]:
    """No member is told how far its leader is durable, so that each waits for a commit end."""

    def tell(self: Replica, names: Collection[str]) -> None:
        pass

    return patched(Replica, tell_durable_end=tell)


NOTICE_MUTANTS = {
    name: Mutant(name, mistake, plant, rule=rule)
    for name, mistake, plant, rule in (
        ("find-before-sync", "a follower finds a commit before its own sync", find_before_sync, "rule 7"),
        ("find-below-the-term", "a follower finds a commit below the term start", find_below_the_term, "rule 7"),
        ("find-without-a-quorum", "leader and follower commit without a quorum", find_without_a_quorum, "rules 7, 15"),
        ("find-while-recovering", "a recovering follower counts itself", find_while_recovering, "rule 17"),
        ("tell-before-sync", "a leader tells the end of its log before its sync", tell_before_sync, "rule 7"),
        ("believe-the-leader-before", "a durable end counts in a later term", believe_the_leader_before, "rule 7"),
        ("read-without-what-was-told", "a read lacks what a member has found", read_without_what_was_told, "reads"),
        ("read-before-the-commit", "a read index is not committed", read_before_the_commit, "reads"),
        ("find-in-interval-mode", "members find commits that are not synced", tell_a_majority_of_none, "interval"),
        ("notify-older-releases", "a notice is sent to an older release", notify_older_releases, "§8"),
        ("notices-not-sent", "an ordered append waits for each commit end", notices_not_sent, "§7"),
    )
}
"""The mutants by name."""
