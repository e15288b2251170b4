"""The core's face: its inputs, its one output, and the table of what each role does with each message."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from viewstamp.consensus import candidate, follower, leader, quiet, reads, reconfigure
from viewstamp.consensus import messages as m
from viewstamp.consensus.membership import Change
from viewstamp.consensus.messages import Message
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.ready import Ready
from viewstamp.consensus.state import Campaign, Core, Entropy, Following, Leading, RaftOptions, SnapshotPoint, Stored
from viewstamp.errors import BrokenRuleError
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.wire.batch import Batch

__all__ = ["DISPATCH", "Raft", "describe_dispatch", "ignored", "impossible"]

_FROM_A_LEADER = (
    m.HistoryRequest,
    m.Announcement,
    m.SnapshotOffer,
    m.AppendRequest,
    m.HeartbeatRequest,
    m.TimeoutNow,
)
_REQUESTS = (*_FROM_A_LEADER, m.ReadIndexRequest)
_TERM_LEAP_MAX = 1 << 32
"""How far the term of a message may be above a member's own."""
_NEWCOMERS_TERM_MAX = 1 << 61
"""The highest term that a member takes which no membership names: half of the numbers that a frame carries remain."""
_DOWN_TIMEOUTS = 10
"""Election timeouts without a response after which a member is taken to be down."""

Handler = Callable[[Core, Any], None]


# -- The table -------------------------------------------------------------------------------------------------


def ignored(core: Core, message: Message) -> None:
    """Do nothing: the message is late, doubled, or meant for a role that this member no longer has."""


def impossible(core: Core, message: Message) -> None:
    """Refuse what only a second leader of the same term could send.

    Raises:
      BrokenRuleError: always.
    """
    complaint = f"{message.source} sent {type(message).__name__} to a {core.role.value}"
    core.refuse(message.source, "one-leader", complaint)


_FOLLOWING: dict[type[Message], Handler] = {
    m.PreVoteRequest: candidate.on_pre_vote_request,
    m.PreVoteResponse: ignored,
    m.VoteRequest: candidate.on_vote_request,
    m.VoteResponse: ignored,
    m.HistoryRequest: follower.on_history_request,
    m.HistoryResponse: ignored,
    m.Announcement: follower.on_announcement,
    m.AnnouncementResponse: ignored,
    m.SnapshotOffer: follower.on_snapshot_offer,
    m.AppendRequest: follower.on_append_request,
    m.AppendResponse: ignored,
    m.HeartbeatRequest: follower.on_heartbeat_request,
    m.HeartbeatResponse: ignored,
    m.ReadIndexRequest: ignored,
    m.ReadIndexResponse: reads.on_read_index_response,
    m.TermResponse: ignored,
    m.TimeoutNow: candidate.on_timeout_now,
    m.BatchesRead: ignored,
}

DISPATCH: dict[type[Following | Campaign | Leading], dict[type[Message], Handler]] = {
    Leading: {
        m.PreVoteRequest: candidate.on_pre_vote_request,
        m.PreVoteResponse: ignored,
        m.VoteRequest: candidate.on_vote_request,
        m.VoteResponse: leader.on_vote_response,
        m.HistoryRequest: impossible,
        m.HistoryResponse: leader.on_history_response,
        m.Announcement: impossible,
        m.AnnouncementResponse: leader.on_announcement_response,
        m.SnapshotOffer: impossible,
        m.AppendRequest: impossible,
        m.AppendResponse: leader.on_append_response,
        m.HeartbeatRequest: impossible,
        m.HeartbeatResponse: reads.on_heartbeat_response,
        m.ReadIndexRequest: reads.on_read_index_request,
        m.ReadIndexResponse: ignored,
        m.TermResponse: ignored,
        m.TimeoutNow: impossible,
        m.BatchesRead: leader.on_batches_read,
    },
    Campaign: {
        **_FOLLOWING,
        m.PreVoteResponse: candidate.on_pre_vote_response,
        m.VoteResponse: candidate.on_vote_response,
        m.ReadIndexResponse: ignored,
    },
    Following: _FOLLOWING,
}
"""What a member does with each message, by the class of its ``Core.state``.

By the time it is consulted the term of the message equals the core's, votes and pre-votes excepted (:meth:`Raft.step`).
"""

_ROLES = {Leading: "leader", Campaign: "candidate", Following: "follower, learner, non-participant"}


def describe_dispatch() -> str:
    """Return the table as Markdown, a row for a message, a column for a role: ``docs/protocol.md`` holds it."""
    header = ["message", *_ROLES.values()]
    rows = [header, ["---"] * len(header)]
    for kind in m.MESSAGES:
        rows.append([f"`{kind.__name__}`", *(_describe(DISPATCH[state][kind]) for state in _ROLES)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _describe(handler: Handler) -> str:
    if handler is ignored:
        return "ignored"
    if handler is impossible:
        return "**impossible**"
    return f"`{handler.__module__.rpartition('.')[2]}.{handler.__name__}`"


# -- The core --------------------------------------------------------------------------------------------------


class Raft:
    """One member of a group: feed it the inputs, then take one :meth:`ready` and do as it says.

    Never awaits; owns no clock, disk, socket, thread or randomness. The caller steps everything that has arrived
    and takes *one* Ready: batching, and so group commit, fall out of that loop.

    Raises (from :meth:`step` and :meth:`install`):
      BrokenRuleError: the message breaks a rule of the protocol. Nothing has changed: drop it, end its connection.
      ContradictionError: a leader's log contradicts what is committed here. The node stops.
    """

    def __init__(self, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:
        self.core = Core(me, options, stored, entropy)
        self.core.maybe_end_recovery()

    # -- Inputs ---------------------------------------------------------------------------------------------

    def tick(self, wall_us: int, *, has_room: bool = True, ticks: int = 1) -> None:
        """Let time pass: one tick, or at most as many as :meth:`quiet_ticks` returned since the last input.

        Args:
          wall_us: the wall clock, microseconds since 1970: log times come from it.
          has_room: False where this member could not lead: on a disk without room for one more record.
          ticks: how many.
        """
        core = self.core
        core.wall_us = wall_us
        core.has_room = has_room
        core.ticks_since_leader += ticks
        core.leaderless_ticks = core.leaderless_ticks + ticks if core.leader is None else 0
        core.ticks_since_message += ticks
        core.vote_ticks += ticks
        if core.patience.delays and core.patience.tick(ticks):
            core.election_ticks = core.draw_election_ticks()
        leading = core.state
        if isinstance(leading, Leading):
            leader.on_tick(core, leading, ticks)
            if core.state is leading and not core.installing:
                reconfigure.on_tick(core, leading)
        elif has_room and core.ticks_since_leader >= core.election_ticks:
            candidate.start(core)

    def quiet_ticks(self) -> int:
        """Return how many ticks may pass at once: before the last of them none does more than count.

        At least 1, at most half an election timeout. It holds until the next input other than :meth:`tick`.
        """
        return quiet.quiet_ticks(self.core)

    def step(self, message: Message) -> None:
        """Take a message of a peer, or of the node itself (``Ready.messages_after_durable``, ``BatchesRead``)."""
        core = self.core
        if message.target != core.me or core.installing:
            return  # Nothing is answered until truncation and history are both durable (rule 5).
        if message.term > core.term:
            self._check_newer(message)
        if message.term != core.term and not isinstance(message, m.PreVoteRequest | m.VoteRequest):
            if message.term < core.term:
                if isinstance(message, _REQUESTS):
                    core.answer_term(message)
                return
            if not (isinstance(message, m.PreVoteResponse) and message.granted):
                vote = message.source if isinstance(message, _FROM_A_LEADER) else ""
                follower.step_down(core, message.term, vote=vote)
        DISPATCH[type(core.state)][type(message)](core, message)

    def _check_newer(self, message: Message) -> None:
        """Check a message of a newer term before that term is taken. Raises BrokenRuleError, ContradictionError.

        A term is stored by every member that it reaches and never goes back, so a single message with the greatest
        number would leave no term for another election. An election raises the term by one: at a thousand elections
        each second, a member that lags by ``_TERM_LEAP_MAX`` has been away for 50 days. A newcomer has no term of its
        group yet, and takes any up to ``_NEWCOMERS_TERM_MAX``.
        """
        core = self.core
        term_max = _NEWCOMERS_TERM_MAX if core.is_newcomer else core.term + _TERM_LEAP_MAX
        if message.term > term_max:
            core.refuse(
                message.source,
                "term-leap",
                f"{message.source} sent {type(message).__name__} of term {message.term}, the limit here is {term_max}",
            )
        if isinstance(message, m.Announcement):
            follower.check_announcement(core, message)

    def propose(self, batch: Batch) -> Viewstamp:
        """Append a batch that has no index yet; return the viewstamp of its first record.

        The batch is stamped in place and must not change afterwards. Its ``first_position`` is kept.

        Raises:
          NotLeaderError: ask the leader it names.
          UnavailableError: the group is still configuring; try again.
          OverloadedError: too much is uncommitted; try again later.
        """
        self.append_checked(self.check_propose(batch.size), batch)
        return Viewstamp(batch.term, batch.first_index)

    def check_propose(self, size: int) -> Leading:
        """Raise what :meth:`propose` would raise for a batch of ``size`` bytes; change nothing.

        Returns:
          What :meth:`append_checked` takes, as long as no other input has come in between.
        """
        return leader.check_propose(self.core, size)

    def append_checked(self, leading: Leading, batch: Batch) -> None:
        """Do what :meth:`propose` does, for a batch that :meth:`check_propose` has just let through."""
        assert leading is self.core.state, f"{self.core.me} does not lead any more as it did when this was checked"
        leader.append_own(self.core, leading, batch)

    def change(self, wanted: Change) -> Viewstamp:
        """Begin a change of the membership; return where its record stands (the present one's, if nothing changes).

        The rest follows by itself: a joint membership is left when it is committed, a joining learner promoted when it
        has caught up, a removed leader steps down.

        Raises:
          NotLeaderError, UnavailableError: as :meth:`propose`; also while another change is under way (rule 15).
          RequestError: it cannot be done: no such member, or the last voter.
        """
        return reconfigure.change(self.core, wanted)

    def transfer(self, target: NodeId | None = None) -> NodeId:
        """Begin to hand the leadership over to ``target`` (None = who is closest); return whom.

        Until it has worked, which only a new term shows, or an election timeout is over, nothing is proposed.

        Raises:
          NotLeaderError: ask the leader it names.
          UnavailableError: the target does not follow closely enough at present.
          RequestError: it is no voter.
        """
        return reconfigure.transfer(self.core, target)

    def note_incarnation(self, member: NodeId, incarnation: str) -> None:
        """Note which disk a member has, or this one; a leader names it in the membership, by a record if need be."""
        self.core.incarnations.setdefault(member, incarnation)

    def lost_leader(self, member: NodeId) -> None:
        """Note that the process of ``member`` seems to be dead. That may be wrong, and may come at any time, and often.

        If it leads, this member stops waiting for it: it gives its vote to others, and stands itself soon, by a
        pre-vote as ever, unless a message of the leader arrives before. Nothing else follows from it.
        """
        follower.lose_leader(self.core, member)

    def is_responding(self, member: NodeId) -> bool:
        """Return whether ``member`` answered this leader within ``reconfigure.GONE_TIMEOUTS`` election timeouts."""
        return reconfigure.is_responding(self.core, member)

    def read(self, token: int) -> None:
        """Ask for the index up to which the reads of ``token`` must have been applied; it comes in ``Ready.reads``.

        It may never come (no leader, lost messages): the caller asks again, with a new token, until its deadline.
        """
        reads.ask(self.core, token)

    def durable(self, viewstamp: Viewstamp) -> None:
        """The writes of the Ready that carried ``viewstamp`` are durable, and so are all before them. Once for each.

        A completion of another term than the one that batches are accepted under now is dropped: the log may have
        been cut and written again since (rule 9).
        """
        core = self.core
        core.unfinished -= 1
        core.completions_left -= core.installing
        leading = core.state
        counts_again = False
        if core.recovery_completions_left > 0:
            core.recovery_completions_left -= 1
            if core.recovery_completions_left == 0:
                core.recovering_until, core.lost_power = None, False
                counts_again = isinstance(leading, Leading)
        was_installing = core.installing and core.completions_left == 0
        if viewstamp.term != core.accept_term or (core.installing and not was_installing):
            return
        end = Index(viewstamp.index + 1)
        is_news = end > core.log.durable_end or was_installing or counts_again
        core.log.durable_end = max(end, core.log.durable_end)
        core.installing = False
        if is_news and isinstance(leading, Leading):
            leader.on_durable(core, leading, was_installing=was_installing)
        elif is_news:
            follower.on_durable(core, was_installing=was_installing)
        if core.stash and core.is_synced:
            waiting, core.stash = list(core.stash.values()), {}
            for message in waiting:
                # It kept the rules when it came, and this log has changed since: what does not fit any more is dropped.
                with suppress(BrokenRuleError):
                    self.step(message)

    def install(self, point: SnapshotPoint) -> bool | None:
        """Let a snapshot, whose file is durable, stand for everything before ``point.end`` (protocol rule 19).

        True: it does; the next Ready resets the log, then stores the snapshot's history, and until both are durable
        this member answers nothing. The caller replaces the applied state now. False: it is of no use any more.
        None: not now, since writes are under way; try again when they are durable.
        """
        return follower.install(self.core, point)

    def trimmed(self, first_index: Index, base: tuple[Index, Term]) -> None:
        """The log on disk begins at ``first_index`` now; members that need what is before get the snapshot ``base``.

        Its end is at or above ``first_index``, so that what follows it can be sent. The stored history is trimmed at
        the next election, by the winner.
        """
        assert first_index <= base[0], f"a log from {first_index} on does not continue a snapshot up to {base[0]}"
        self.core.first_index = first_index
        self.core.base = base

    # -- Output ---------------------------------------------------------------------------------------------

    def ready(self) -> Ready | None:
        """Take what is to be done now; None when there is nothing. What it holds is handed out once."""
        core, log = self.core, self.core.log
        leading = core.state
        if isinstance(leading, Leading) and not core.installing:
            for progress in leading.progress.values():
                if progress.next_end < log.end:  # In most turns every member has been sent everything.
                    leader.send_appends(core, leading)
                    break
            if leading.reads_waiting and leading.is_reached:
                reads.start_round(core, leading)
        ready = core.output
        if log.handed_end != log.commit_end:
            ready.committed = log.hand_out()
        waits = bool(ready.writes or ready.messages_after_durable)
        has_work = waits or ready.messages or ready.committed or ready.reads or ready.fetches
        if not (has_work or ready.offer or ready.superseded):
            return None
        if isinstance(leading, Leading):
            for batch in ready.committed:
                if batch.term == core.term:
                    leading.uncommitted_bytes -= batch.size
        if waits:
            core.unfinished += 1
            ready.durable = core.durable_viewstamp()
        core.output = Ready()
        if log.cache_bytes > log.cache_bytes_max:
            log.evict()
        return ready

    # -- What others may know --------------------------------------------------------------------------------

    @property
    def slowest_end(self) -> Index:
        """The least durable end of the members that replicate; the own end where there is none.

        A member that is down (``_DOWN_TIMEOUTS``) does not count. Keeping the log from this end on only saves work: a
        member that falls behind the log's begin gets a snapshot.
        """
        core = self.core
        patience = _DOWN_TIMEOUTS * core.options.election_timeout_ticks
        ends = [
            each.durable_end
            for each in (core.state.progress.values() if isinstance(core.state, Leading) else ())
            if each.state is ProgressState.REPLICATING and each.ticks_since_response <= patience
        ]
        return min([core.log.end, *(end for end in ends if end > 0)])
