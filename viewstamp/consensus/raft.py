"""The core's face: its inputs, and one output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from viewstamp.consensus import candidate, follower, leader, voter
from viewstamp.consensus.membership import Change
from viewstamp.consensus.messages import (
    Announcement,
    AppendRequest,
    HeartbeatRequest,
    HistoryRequest,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    ReadIndexRequest,
    SnapshotOffer,
    TimeoutNow,
    VoteRequest,
)
from viewstamp.consensus.progress import ProgressState
from viewstamp.consensus.ready import Ready
from viewstamp.consensus.roles import DISPATCH, IGNORED, IMPOSSIBLE, Lifecycle, Role
from viewstamp.consensus.state import Core, Entropy, RaftOptions, SnapshotPoint, Stored
from viewstamp.errors import BrokenRuleError
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.wire.batch import Batch

__all__ = ["Raft"]

_FROM_A_LEADER = (HistoryRequest, Announcement, SnapshotOffer, AppendRequest, HeartbeatRequest, TimeoutNow)
_REQUESTS = (*_FROM_A_LEADER, ReadIndexRequest)
_TERM_LEAP_MAX = 1 << 32
"""How far the term of a message may be above a member's own."""
_NEWCOMERS_TERM_MAX = 1 << 61
"""The highest term that a member takes which no membership names: half of the numbers that a frame carries remain."""
_PATIENCE_TIMEOUTS = 10
"""A member that has not answered for so many election timeouts is down."""
_MODULES = {"voter": voter, "follower": follower, "candidate": candidate, "leader": leader}

Handler = Callable[[Core, Message], None]


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
        self._handlers: dict[Role, dict[type[Message], Handler | str]] = {
            role: {kind: _resolve(name) for kind, name in row.items()} for role, row in DISPATCH.items()
        }

    # -- Inputs ---------------------------------------------------------------------------------------------

    def tick(self, wall_us: int, *, has_room: bool = True) -> None:
        """Let one tick pass.

        Args:
          wall_us: the wall clock, microseconds since 1970: log times come from it.
          has_room: False where this member could not lead: on a disk without room for one more record.
        """
        core = self.core
        core.wall_us = wall_us
        core.has_room = has_room
        core.ticks_since_leader += 1
        core.leaderless_ticks = core.leaderless_ticks + 1 if core.leader is None else 0
        core.ticks_since_message += 1
        core.vote_ticks += 1
        if core.patience.delays and core.patience.tick():
            core.election_ticks = core.draw_election_ticks()
        if core.leader == core.me:
            leader.on_tick(core)
        elif has_room and core.ticks_since_leader >= core.election_ticks:
            candidate.start(core)

    def step(self, message: Message) -> None:
        """Take a message of a peer, or of the node itself (``Ready.messages_after_durable``, ``BatchesRead``)."""
        core = self.core
        if message.target != core.me or core.installing:
            return  # Installing: silence, until truncation and history are both durable (rule 5).
        if message.term > core.term:
            self._check_newer(message)
        if isinstance(message, PreVoteRequest | VoteRequest):
            self._dispatch(message)
        elif message.term < core.term:
            if isinstance(message, _REQUESTS):
                core.answer_term(message)
        elif message.term == core.term or (isinstance(message, PreVoteResponse) and message.granted):
            self._dispatch(message)
        else:
            vote = message.source if isinstance(message, _FROM_A_LEADER) else ""
            follower.step_down(core, message.term, vote=vote)
            self._dispatch(message)

    def _check_newer(self, message: Message) -> None:
        """Check a message of a newer term before that term is taken. Raises BrokenRuleError, ContradictionError.

        A term is stored by every member that it reaches and never goes back, so a single message with the greatest
        number would leave no term in which anybody could be elected. An election raises the term by one: at a thousand
        elections each second, a member that lags by ``_TERM_LEAP_MAX`` has been away for 50 days. A newcomer knows no
        term of its group yet, and takes any up to ``_NEWCOMERS_TERM_MAX``.
        """
        core = self.core
        term_max = _NEWCOMERS_TERM_MAX if core.is_newcomer else core.term + _TERM_LEAP_MAX
        if message.term > term_max:
            core.refuse(
                message.source,
                "term-leap",
                f"{message.source} sent {type(message).__name__} of term {message.term}, the limit here is {term_max}",
            )
        if isinstance(message, Announcement):
            follower.check_announcement(core, message)

    def propose(self, batch: Batch) -> Viewstamp:
        """Append a batch that has no index yet; return the viewstamp of its first record.

        The batch is stamped in place and must not change afterwards. Its ``first_position`` is kept.

        Raises:
          NotLeaderError: ask the leader it names.
          UnavailableError: the group is still configuring; try again.
          OverloadedError: too much is uncommitted; try again later.
        """
        return leader.propose(self.core, batch)

    def check_propose(self, size: int) -> None:
        """Raise what :meth:`propose` would raise for a batch of ``size`` bytes; change nothing."""
        leader.check_propose(self.core, size)

    def change(self, wanted: Change) -> Viewstamp:
        """Begin a change of the membership; return where its record stands (the present one's, if nothing changes).

        The rest follows by itself: a joint membership is left when it is committed, a joining learner promoted when it
        has caught up, a removed leader steps down.

        Raises:
          NotLeaderError, UnavailableError: as :meth:`propose`; also while another change is under way (rule 15).
          RequestError: it cannot be done: no such member, or the last voter.
        """
        return leader.change(self.core, wanted)

    def transfer(self, target: NodeId | None = None) -> NodeId:
        """Begin to hand the leadership over to ``target`` (None = who is closest); return whom.

        Until it has worked, which only a new term shows, or an election timeout is over, nothing is proposed.

        Raises:
          NotLeaderError: ask the leader it names.
          UnavailableError: the target does not follow closely enough at present.
          RequestError: it is no voter.
        """
        return leader.transfer(self.core, target)

    def know(self, member: NodeId, incarnation: str) -> None:
        """Hear which disk a member has, or this one: a leader notes it in the membership, by a record if need be."""
        self.core.incarnations.setdefault(member, incarnation)

    def lost_leader(self, member: NodeId) -> None:
        """Hear that the process of ``member`` seems to be dead. It may be wrong, and come at any time, and often.

        If that is the leader, it is not waited for any more: this member gives its vote to others, and stands itself
        soon, by a pre-vote as ever, unless the leader is heard before. Nothing else follows from it.
        """
        follower.lose_leader(self.core, member)

    def hears(self, member: NodeId) -> bool:
        """Return whether this leader has heard ``member`` within ``leader.GONE_TIMEOUTS`` election timeouts."""
        return leader.hears(self.core, member)

    def read(self, token: int) -> None:
        """Ask for the index up to which the reads of ``token`` must have been applied; it comes in ``Ready.reads``.

        It may never come (no leader, lost messages): the caller asks again, with a new token, until its deadline.
        """
        core = self.core
        if core.leader == core.me:
            core.reads_waiting.append((token, None))
        elif core.leader is not None:
            core.send(ReadIndexRequest(source=core.me, target=core.leader, term=core.term, token=token))

    def durable(self, viewstamp: Viewstamp) -> None:
        """The writes of the Ready that carried ``viewstamp`` are durable, and so are all before them. Once for each.

        A completion of another term than the one that batches are accepted under now is dropped: the log may have
        been cut and written again since (rule 9).
        """
        core = self.core
        core.unfinished -= 1
        core.completions_left -= core.installing
        speaks = False
        if core.recovery_completions_left > 0:
            core.recovery_completions_left -= 1
            if core.recovery_completions_left == 0:
                core.recovering_until, core.lost_power = None, False
                speaks = core.leader == core.me
        was_installing = core.installing and core.completions_left == 0
        if not is_current_completion(core, viewstamp) or (core.installing and not was_installing):
            return
        end = Index(viewstamp.index + 1)
        is_news = end > core.log.durable_end or was_installing or speaks
        core.log.durable_end = max(end, core.log.durable_end)
        core.installing = False
        if is_news:
            role = leader if core.leader == core.me else follower
            role.on_durable(core, was_installing=was_installing)
        if core.is_synced and core.stash:
            waiting, core.stash = list(core.stash.values()), {}
            for message in waiting:
                # It kept the rules when it came, and this log has changed since: what does not fit any more is dropped.
                with suppress(BrokenRuleError):
                    self.step(message)

    def install(self, point: SnapshotPoint) -> bool | None:
        """Let a snapshot, whose file is durable, stand for everything before ``point.end`` (protocol rule 19).

        True: it does; the next Ready resets the log, then stores the snapshot's history, and until both are durable
        this member is silent. The caller replaces the applied state now. False: it is of no use any more, forget it.
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
        core = self.core
        if core.leader == core.me and not core.installing:
            leader.send_appends(core)
            leader.start_read_round(core)
        committed = core.log.hand_out()
        if not (
            core.messages
            or core.writes
            or core.messages_after_durable
            or committed
            or core.reads_ready
            or core.fetches
            or core.offer
            or core.superseded
        ):
            return None
        if core.leader == core.me:
            core.uncommitted_bytes -= sum(batch.size for batch in committed if batch.term == core.term)
        waits = bool(core.writes or core.messages_after_durable)
        core.unfinished += waits
        ready = Ready(
            messages=core.messages,
            writes=core.writes,
            durable=core.durable_viewstamp() if waits else None,
            messages_after_durable=core.messages_after_durable,
            committed=committed,
            reads=core.reads_ready,
            fetches=core.fetches,
            offer=core.offer,
            superseded=core.superseded,
        )
        core.messages = []
        core.writes = []
        core.messages_after_durable = []
        core.reads_ready = []
        core.fetches = []
        core.offer = None
        core.superseded = ""
        core.log.evict()
        return ready

    # -- What others may know --------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The member's role."""
        return self.core.role

    @property
    def lifecycle(self) -> Lifecycle:
        """CONFIGURING or RUNNING."""
        return self.core.lifecycle

    @property
    def term(self) -> Term:
        """The member's term."""
        return self.core.term

    @property
    def leader(self) -> NodeId | None:
        """Who leads, as far as this member knows."""
        return self.core.leader

    @property
    def slowest_end(self) -> Index:
        """The least durable end of the members that take batches; the own end where there is none.

        Who has been silent for some election timeouts is down, and holds nothing. Also what this holds back is a
        convenience: a member that falls behind the log's begin gets a snapshot.
        """
        core = self.core
        patience = _PATIENCE_TIMEOUTS * core.options.election_timeout_ticks
        taking = [
            each
            for each in core.progress.values()
            if each.state is ProgressState.REPLICATING and each.ticks_since_response <= patience
        ]
        ends = [each.durable_end for each in taking]
        return min([core.log.end, *(end for end in ends if end > 0)])

    def _dispatch(self, message: Message) -> None:
        handler = self._handlers[self.core.role][type(message)]
        if callable(handler):
            handler(self.core, message)
        elif handler is IMPOSSIBLE:
            self.core.refuse(
                message.source,
                "one-leader",
                f"{message.source} sent {type(message).__name__} to a {self.core.role.value}",
            )


def is_current_completion(core: Core, viewstamp: Viewstamp) -> bool:
    """Say whether a completion speaks for the log as it stands: by the term it was accepted under (rule 9)."""
    return viewstamp.term == core.accept_term


def _resolve(name: str) -> Handler | str:
    """Find the function that a cell of the table names."""
    if name in (IGNORED, IMPOSSIBLE):
        return name
    module, function = name.split(".")
    handler: Handler = getattr(_MODULES[module], function)
    return handler
