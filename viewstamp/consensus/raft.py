"""The interface of the core: its inputs, its one output, and the table of handlers by role and message."""

from __future__ import annotations

from collections.abc import Callable, Collection
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

__all__ = ["DISPATCH", "Raft", "describe_dispatch", "ignored", "impossible", "share_of"]

_FROM_A_LEADER = (
    m.HistoryRequest,
    m.Announcement,
    m.SnapshotOffer,
    m.AppendRequest,
    m.HeartbeatRequest,
    m.TimeoutNow,
    m.DurableNotice,
)
_REQUESTS = (*_FROM_A_LEADER, m.ReadIndexRequest)
_TERM_LEAP_MAX = 1 << 32
"""Limit of the term of a message above a member's own."""
_NEWCOMERS_TERM_MAX = 1 << 61
"""The highest term that a newcomer adopts, so that half of the numbers that a frame carries remain."""
_DOWN_TIMEOUTS = 10
"""Election timeouts without a response after which a member is considered down."""

Handler = Callable[[Core, Any], None]


# -- The table -------------------------------------------------------------------------------------------------


def ignored(core: Core, message: Message) -> None:
    """Do nothing, because the message is late, doubled, or meant for a role that this member no longer has."""


def impossible(core: Core, message: Message) -> None:
    """Refuse a message that only a second leader of the same term could send.

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
    m.DurableNotice: follower.on_durable_notice,
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
        m.DurableNotice: impossible,
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
"""The handler of each message, by the class of ``Core.state``.

:meth:`Raft.step` calls it only if the term of the message equals the core's, except for votes and pre-votes.
"""

_ROLES = {Leading: "leader", Campaign: "candidate", Following: "follower, learner, non-participant"}


def describe_dispatch() -> str:
    """Return the table as Markdown for ``docs/protocol.md``, with a row for each message and a column for each role."""
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


def share_of(total: int, groups: int, least: int) -> int:
    """Return an equal share of ``total``, but not less than ``least`` while that is within ``total``."""
    return max(min(least, total), total // groups)


class Raft:
    """One member of a group: call its inputs, then take one :meth:`ready` and carry it out.

    It never awaits and owns no clock, disk, socket, thread or randomness. The caller steps everything that has arrived
    and then takes *one* Ready. This loop is the reason why records are batched and committed in groups.

    Raises (from :meth:`step` and :meth:`install`):
      BrokenRuleError: the message breaks a rule of the protocol. Nothing has changed. Drop it and close its connection.
      ContradictionError: a leader's log contradicts records that are committed here. The node stops.
    """

    def __init__(self, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:
        self.core = Core(me, options, stored, entropy)
        self.core.maybe_end_recovery()

    # -- Inputs ---------------------------------------------------------------------------------------------

    def tick(self, wall_us: int, *, has_room: bool = True, ticks: int = 1) -> None:
        """Advance the time by one tick, or by at most as many as :meth:`quiet_ticks` returned since the last input.

        Args:
          wall_us: the wall clock, microseconds since 1970. Log times are taken from it.
          has_room: False if the disk has no room for one more record, because then this member could not lead.
          ticks: the number of ticks.
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

    def beat(self) -> None:
        """Send the heartbeats of an idle leader now, so that they leave together with those of other groups.

        They would be due a little later. So would the check for a quorum, if it is made before the next beat and would
        succeed (``leader.check_with_beat``). In every other state the call has no effect, and neither has it in the
        tick in which heartbeats were sent, because the caller was late.
        """
        core = self.core
        leading = core.state
        if not isinstance(leading, Leading) or not leading.heartbeat_elapsed or core.installing:
            return
        if quiet.is_idle(core, leading):
            leader.check_with_beat(core, leading)
            leader.send_heartbeats(core, leading)

    def tell_commit_end(self, names: Collection[str]) -> None:
        """Send the commit end now, instead of at the next tick, to members of these nodes, if no append will carry it.

        A caller uses it when another node waits for a record to be applied there. In every state but that of a leader
        the call has no effect.
        """
        core = self.core
        if isinstance(core.state, Leading) and not core.installing:
            leader.send_commit_end(core, core.state, names)

    def tell_durable_end(self, names: Collection[str]) -> None:
        """Send the own durable end, once it has reached the present end of the log, to members of these nodes.

        With it a member that makes a majority with this leader finds by itself that those records are committed. A
        caller uses it when another node waits for a record to be applied there. In every state but that of a leader the
        call has no effect.
        """
        core = self.core
        if isinstance(core.state, Leading) and not core.installing:
            leader.tell_durable_end(core, core.state, names)

    def share(self, groups: int) -> None:
        """Use an equal share of the memory for cached batches and for appends in flight, because ``groups`` use it.

        The share is at least ``append_bytes_max``. What is above it is dropped, or acknowledged, in later turns.
        """
        core, options = self.core, self.core.options
        core.window_bytes = share_of(options.in_flight_bytes_max, groups, options.append_bytes_max)
        core.log.cache_bytes_max = share_of(options.cache_bytes_max, groups, options.append_bytes_max)

    def begin_turn(self, uptime_us: int) -> None:
        """Note the uptime of the machine, which was read after the inputs of this turn had arrived. Only for leases."""
        core = self.core
        core.now_us = max(core.now_us, uptime_us)
        if core.held_back_us:
            core.promised_until_us, core.held_back_us = core.now_us + core.held_back_us, 0

    def quiet_ticks(self) -> int:
        """Return the number of ticks that may pass as one, because all but the last of them only count.

        At least 1, at most half an election timeout. It holds until the next input other than :meth:`tick`.
        """
        return quiet.quiet_ticks(self.core)

    def step(self, message: Message) -> None:
        """Handle a message of a peer, or of the node itself (``Ready.messages_after_durable``, ``BatchesRead``)."""
        core = self.core
        if message.target != core.me or core.installing:
            return  # This member answers nothing until truncation and history are both durable (rule 5).
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
        """Check a message of a newer term before that term is adopted. Raises BrokenRuleError, ContradictionError.

        Every member that receives a term stores it and never goes back, so a single message with the greatest number
        would leave no term for another election. The limit refuses no honest message, because an election raises the
        term by one: at a thousand elections each second, a member that lags by ``_TERM_LEAP_MAX`` has been away for 50
        days. A newcomer has no term of its group yet, and adopts any up to ``_NEWCOMERS_TERM_MAX``.
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
          NotLeaderError: this member does not lead. Ask the leader that the error names.
          UnavailableError: the membership record of this term is not committed yet, or the leadership is being handed
            over. Try again.
          OverloadedError: more than ``uncommitted_bytes_max`` would be uncommitted. Try again later.
        """
        self.append_checked(self.check_propose(batch.size), batch)
        return Viewstamp(batch.term, batch.first_index)

    def check_propose(self, size: int) -> Leading:
        """Raise the error that :meth:`propose` would raise for a batch of ``size`` bytes; change nothing.

        Returns:
          The argument for :meth:`append_checked`. It is valid until the next input.
        """
        return leader.check_propose(self.core, size)

    def append_checked(self, leading: Leading, batch: Batch) -> None:
        """Append a batch as :meth:`propose` does, after :meth:`check_propose` has accepted it in the same turn."""
        assert leading is self.core.state, f"{self.core.me} does not lead any more as it did when this was checked"
        leader.append_own(self.core, leading, batch)

    def change(self, wanted: Change) -> Viewstamp:
        """Begin a change of the membership; return the viewstamp of its record (the present one's, if nothing changes).

        The leader takes the further steps by itself: it leaves a joint membership when it is committed, promotes a
        joining learner when it has caught up, and steps down if it is removed.

        Raises:
          NotLeaderError, UnavailableError: as :meth:`propose`; also while another change is under way (rule 15).
          RequestError: the change is impossible, for example for an unknown member or the last voter.
        """
        return reconfigure.change(self.core, wanted)

    def transfer(self, target: NodeId | None = None) -> NodeId:
        """Begin to hand the leadership over to ``target`` (None = the closest voter); return the target.

        Proposals are refused until a new term shows that the transfer worked, or an election timeout is over.

        Raises:
          NotLeaderError: this member does not lead. Ask the leader that the error names.
          UnavailableError: the target does not follow closely enough at present.
          RequestError: the target is no voter, or there is no other voter.
        """
        return reconfigure.transfer(self.core, target)

    def note_incarnation(self, member: NodeId, incarnation: str) -> None:
        """Note the disk of a member, or the own one. A leader names it in the membership, if needed by a new record."""
        self.core.incarnations.setdefault(member, incarnation)

    def lost_leader(self, member: NodeId) -> None:
        """Note that the process of ``member`` seems to be dead. This may be wrong, and may be repeated at any time.

        If ``member`` leads, this member stops waiting for it: it gives its vote to others, and soon campaigns itself
        by a pre-vote as always, unless a message of the leader arrives before. The call has no other effect.
        """
        follower.lose_leader(self.core, member)

    def is_responding(self, member: NodeId) -> bool:
        """Return whether ``member`` answered this leader within ``reconfigure.GONE_TIMEOUTS`` election timeouts."""
        return reconfigure.is_responding(self.core, member)

    def read(self, token: int) -> None:
        """Request the index that must have been applied before the reads of ``token``; ``Ready.reads`` returns it.

        It may never be returned, for example without a leader or after lost messages. The caller asks again, with a new
        token, until its deadline.
        """
        reads.ask(self.core, token)

    def durable(self, viewstamp: Viewstamp) -> None:
        """Note that the writes of the Ready with ``viewstamp``, and all before them, are durable. Called once for each.

        If batches are now accepted under another term than that of ``viewstamp``, the completion is dropped, because
        the log may have been cut and written again since (rule 9).
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
                # The message kept the rules when it arrived. If it breaks one now, it is dropped, because the reason is
                # that this log has changed since.
                with suppress(BrokenRuleError):
                    self.step(message)

    def install(self, point: SnapshotPoint) -> bool | None:
        """Replace everything before ``point.end`` by a snapshot with a durable file (protocol rule 19).

        Returns:
          True: the snapshot is installed, and the caller replaces the applied state now. The next Ready resets the log,
          then stores the snapshot's history; until both are durable this member answers nothing. False: the snapshot is
          not needed any more. None: not now, because writes are under way; try again when they are durable.
        """
        return follower.install(self.core, point)

    def trimmed(self, first_index: Index, base: tuple[Index, Term]) -> None:
        """Note that the log on disk begins at ``first_index`` now; members that need earlier records get a snapshot.

        ``base`` is (end, last term) of that snapshot. Its end is at or above ``first_index``, so that the records after
        it can be sent. The winner of the next election trims the stored history.
        """
        assert first_index <= base[0], f"a log from {first_index} on does not continue a snapshot up to {base[0]}"
        self.core.first_index = first_index
        self.core.base = base

    # -- Output ---------------------------------------------------------------------------------------------

    def ready(self) -> Ready | None:
        """Return the work of this turn, which is handed out only once; None if there is none."""
        core, log = self.core, self.core.log
        leading = core.state
        if isinstance(leading, Leading) and not core.installing:
            for progress in leading.progress.values():
                if progress.next_end < log.end:  # In most turns every member has been sent everything.
                    leader.send_appends(core, leading)
                    break
            if leading.reads_waiting and leading.is_reached:
                reads.start_round(core, leading)
            elif leading.reads and leading.told_end:
                reads.confirm(core, leading)  # They may have waited for the commit of what members were told.
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

    # -- State for the owner ---------------------------------------------------------------------------------

    @property
    def slowest_end(self) -> Index:
        """The least durable end of the members in state REPLICATING; the own end if there is none.

        A member that is down (``_DOWN_TIMEOUTS``) does not count. Keeping the log from this end on only saves work,
        because a member that falls behind the log's begin gets a snapshot. So a member that has not taken a record for
        as long does not count either: if its log is full, it needs a snapshot, because a trim that would make room is
        behind the records for which there is none.
        """
        core = self.core
        patience = _DOWN_TIMEOUTS * core.options.election_timeout_ticks
        ends = [
            each.durable_end
            for each in (core.state.progress.values() if isinstance(core.state, Leading) else ())
            if each.state is ProgressState.REPLICATING
            and max(each.ticks_since_response, each.standing_ticks) <= patience
        ]
        return min([core.log.end, *(end for end in ends if end > 0)])
