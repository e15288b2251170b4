"""The state of one member: the stored state, the state of every role, and one value for the state of the present role.

``Core.state`` is a :class:`Following`, a :class:`Campaign` or a :class:`Leading`. :meth:`Core.become` replaces it as a
whole at each change of role, leader or term. So a role starts with the defaults of its class, nothing has to be
cleared, and no field of one role can be read in another.

The decisions are in ``follower``, ``candidate``, ``leader``, ``reads`` and ``reconfigure``, as functions that take a
:class:`Core`. Nothing here awaits, or uses a clock, a disk or a socket.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NoReturn, Protocol

from viewstamp.consensus import standing
from viewstamp.consensus.log import RaftLog
from viewstamp.consensus.membership import NOT_MOVED, Membership, MembershipEntry, Readdressing
from viewstamp.consensus.messages import Announcement, Message, TermResponse, VoteResponse
from viewstamp.consensus.patience import Patience
from viewstamp.consensus.progress import Progress
from viewstamp.consensus.ready import AppendLog, EndRecovery, Ready, WriteHistory, WriteTerm
from viewstamp.consensus.roles import Lifecycle, Role, role_of
from viewstamp.consensus.term_history import TermHistory
from viewstamp.enums import fast_members
from viewstamp.errors import BrokenRuleError, ContradictionError
from viewstamp.ids import Index, NodeId, Term, Viewstamp
from viewstamp.value_class import value_class
from viewstamp.wire.batch import Batch, Kind

__all__ = [
    "Campaign",
    "CampaignPhase",
    "Core",
    "Entropy",
    "Following",
    "Leading",
    "PendingRead",
    "RaftOptions",
    "SnapshotPoint",
    "Stored",
]


_make = tuple.__new__
"""Creates a named tuple without calling a Python function, because each round creates one on every member."""


class Entropy(Protocol):
    """The only source of randomness of the core, for election timeouts."""

    def randrange(self, start: int, stop: int) -> int:
        """Return a number in ``[start, stop)``."""
        ...


@value_class
class RaftOptions:
    """Settings of the core. Durations are in ticks."""

    election_timeout_ticks: int = 30
    """A follower campaigns after a random time in [this, 2 * this) without its leader; see ``Patience``."""
    election_stretch_max: int = 10
    """On a slow network the election timeout grows up to this many times the setting."""
    heartbeat_ticks: int = 5
    """Ticks between two heartbeats of a leader."""
    append_bytes_max: int = 1024 * 1024
    """Limit of bytes of batches in one AppendRequest; a larger single batch is sent alone."""
    in_flight_bytes_max: int = 16 * 1024 * 1024
    """A member with this many unacknowledged bytes is sent no append. The bound is this plus one AppendRequest.
    A node with several groups sets ``Core.window_bytes`` lower."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """A leader refuses proposals above this many bytes that are not committed."""
    cache_bytes_max: int = 16 * 1024 * 1024
    """Bytes of the newest batches that stay in memory. Batches that are not both applied and durable stay anyway."""
    campaign_at_once: bool = False
    """Campaign at the first tick. Set on the hinted leader of a new group."""
    may_lose_acknowledged: bool = False
    """Whether this member acknowledges before it syncs (interval mode). If an announcement would then cut committed
    records, it asks the node to set its log aside. In sync mode such a message can only come from a broken peer."""
    wait_all_ticks: int = 30_000
    """Ticks without a leader before a candidate counts the votes of members that lost power, although voters are
    missing."""
    lease_us: int = 0
    """Length of the promise of a member to elect no other leader after a message of its leader; 0 = no leases.
    At most the election timeout. Equal on all members, or the leader has no lease; see ``lease``."""
    sync_only: bool = False
    """Propose nothing when leading: bring a quorum to the own term and commit its records (Neon's sync-safekeepers)."""


@value_class
class Stored:
    """The content of a member's disk when it starts.

    ``tail`` holds the batches in memory, at least all from ``commit_end`` on. ``memberships`` are those of the
    log, in order, preceded by the hint (or the one at the trimmed prefix). ``first_index`` is the first index of the
    log. ``recovering_until`` is a pair that is at least the one that this member advertised before its disk lost data;
    None = nothing was lost, or all of it has been regained.
    """

    term: Term = Term(0)
    vote: str = ""
    history: TermHistory = field(default_factory=TermHistory)
    first_index: Index = Index(1)
    end: Index = Index(1)
    commit_end: Index = Index(1)
    log_time: int = 0
    tail: list[Batch] = field(default_factory=list)
    memberships: list[MembershipEntry]
    recovering_until: tuple[Term, Index] | None = None
    lost_power: bool = False
    """Whether ``recovering_until`` is due to a power loss in interval mode: then all synced data and the vote are
    intact."""
    promised_us: int = 0
    """The longest promise that a process on this disk may have given to a leader; see ``lease``."""
    readdressing: Readdressing = NOT_MOVED
    """Addresses that replace those of ``memberships`` and of records that are appended."""


@value_class
class SnapshotPoint:
    """The position of a snapshot: it stands for everything before ``end``, all of it committed.

    ``last_term`` is the term of the last record covered, ``history`` the terms up to there, ``membership`` the one in
    force there, ``log_time`` that of the last batch.
    """

    end: Index
    last_term: Term
    history: TermHistory
    membership: MembershipEntry
    log_time: int


# -- The state of one role ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Following:
    """A follower, a learner or a non-participant. They handle each message in the same way."""

    leader: NodeId | None = None
    """The leader of this term; None = this member has received nothing from it since it became a follower."""


@fast_members
class CampaignPhase(Enum):
    """The phase of a campaign: a pre-vote changes nothing on any member, a vote begins a new term."""

    PRE_VOTE = "pre-vote"
    VOTE = "vote"


@dataclass(slots=True, eq=False)
class Campaign:
    """A candidate in one phase of its campaign. After a successful pre-vote it gets a new object for the vote."""

    leader: ClassVar[None] = None
    phase: CampaignPhase
    votes: dict[NodeId, bool] = field(default_factory=dict)
    """Whether each member that answered granted its vote, or its pre-vote."""
    recovering_votes: set[NodeId] = field(default_factory=set)
    """The voters in ``votes`` that lost power and have not regained their log."""
    vote_responses: dict[NodeId, VoteResponse] = field(default_factory=dict)


@dataclass(slots=True)
class PendingRead:
    """A read on the leader, from the member ``source`` (None = this node); responses from ``round`` on confirm it."""

    token: int
    source: NodeId | None
    round: int
    index: Index


@dataclass(slots=True, eq=False, kw_only=True)
class Leading:
    """The leader of the present term."""

    leader: NodeId
    """This member."""
    term_start: Index
    """The first index of the term: the log's end when the election was won."""
    progress: dict[NodeId, Progress]
    """All other members, and removed members that may not have received the record of their removal yet."""
    vote_responses: dict[NodeId, VoteResponse] = field(default_factory=dict)
    """The responses of its campaign. The first announcements use the histories in them."""
    elected_without: tuple[NodeId, ...] = ()
    """Not empty if the election needed votes of members that had lost power: the voters that did not answer then.
    Acknowledged records may be lost in this case. () = such votes were not needed."""
    is_reached: bool = False
    """Whether a quorum has reached ``term_start``. Before that, nothing is committed and no read starts (rule 7)."""
    uncommitted_bytes: int = 0
    ticks_since_check: int = 0
    """Ticks since it last checked that a quorum answers."""
    heartbeat_elapsed: int = 0
    """Ticks since the last heartbeat that was due."""
    full_ticks: int = 0
    """Consecutive ticks without room on its disk."""
    transferee: NodeId | None = None
    """The member that is to lead next. Nothing is proposed until it holds the whole log and campaigns, or an election
    timeout is over."""
    transfer_ticks: int = 0
    """Ticks since the transfer began."""
    round: int = 0
    """The number of the newest round of heartbeats that confirms reads."""
    reads: list[PendingRead] = field(default_factory=list)
    round_starts: dict[int, int] = field(default_factory=dict)
    """The uptime at which each round began that no quorum has answered, in microseconds; {} without leases."""
    lease_until_us: int = 0
    """The uptime before which no other leader can be elected; 0 = no lease."""
    has_released: bool = False
    """Whether it has asked another member to campaign in this term: then it uses no lease any more."""
    notices: dict[NodeId, Index] = field(default_factory=dict)
    """The members that are to be told the durable end, until it has reached these ends."""
    told_end: Index = Index(0)
    """The largest durable end that a member was told. It may have applied all before it, committed here or not."""
    reads_waiting: list[tuple[int, NodeId | None]] = field(default_factory=list)
    """Reads without a round, because they came this turn, or before a quorum reached the term start."""


# -- The member --------------------------------------------------------------------------------------------------------


class Core:
    """The state of one member.

    Invariants (asserted by ``sim/checkers``, after every event):
      * HistoryTrue: ``history.term_at(i)`` is the term in the header of the batch that holds i
      * ``accept_term`` is the term under which the newest batches were accepted: announced to this member, or led by it
      * ``announced_number`` > 0 exactly while appends of ``term`` may be accepted (or ``installing``)
      * ``leader`` is ``state.leader``; it is this member exactly if ``state`` is a :class:`Leading`
    """

    def __init__(self, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:
        self.me = me
        self.options = options
        self.window_bytes = options.in_flight_bytes_max
        """The share of ``in_flight_bytes_max`` that this group has; only :meth:`Raft.share` changes it."""
        self.entropy = entropy
        self.state: Following | Campaign | Leading = Following()
        """The state of the present role; only :meth:`become` replaces it."""
        self.leader: NodeId | None = None
        """The leader of ``term``, None = it is not known. A copy of ``state.leader``, because it is read often."""
        self.leader_durable_end = Index(0)
        """The durable end of the leader that this member follows, as far as it was told; 0 = it was told none."""
        self.ahead_end = Index(0)
        """The end up to which this member has found records committed before its leader said so; 0 = it has said so."""

        # The stored state, as it will be once the writes handed out so far are durable.
        self.term = stored.term
        self.vote = stored.vote
        self.history = stored.history
        self.log = RaftLog(
            end=stored.end,
            commit_end=stored.commit_end,
            tail=stored.tail,
            cache_bytes_max=options.cache_bytes_max,
        )
        self.log_time = stored.log_time
        """The log time of the newest batch, microseconds; the next is never earlier."""
        self.readdressing = stored.readdressing
        self.memberships = [self.readdressing.entry(entry) for entry in stored.memberships]
        self.first_index = stored.first_index
        """The first index of the log on disk. Earlier records are only in a snapshot."""
        self.incarnations: dict[NodeId, str] = {}
        """The names of the disks of the members that were met, and of the own one; {} = disks have no names here."""
        self.base: tuple[Index, Term] | None = None
        """(end, last term) of the snapshot that is offered to members that need records before ``first_index``."""
        self.recovering_until = stored.recovering_until
        """The pair to be regained before messages of this member count (rule 17); None = they count."""
        self.lost_power = stored.lost_power
        """Whether that is due to a power loss in interval mode: then it votes, and marks its votes as recovering."""
        self.recovery_completions_left = 0
        """Disk completions still to arrive before the end of recovering is durable; 0 = no such write is in flight."""
        self.life = entropy.randrange(1, 1 << 62) if stored.lost_power else 0
        """A random number of this start of a member that lost power, 0 on others; the announcement has to repeat it."""
        self.unfinished = 0
        """Readys that were handed out and wait for the disk."""

        # The announcement of the present term belongs to no role, because it outlasts a pre-vote.
        self.accept_term = Term(0)
        self.announced_number = 0
        """The number of the announcement of ``term`` that this member has accepted; 0 = none since it started."""
        self.installing = False
        """True from accepting an announcement or a snapshot, or winning, until its writes are durable. Meanwhile this
        member answers nothing (rule 5)."""
        self.completions_left = 0
        """While ``installing``: disk completions up to and including that of its writes. Earlier ones do not end it."""
        self.stash: dict[tuple[type[Message], NodeId], Message] = {}
        """Requests that wait until the log is synced: the latest of each kind from each member."""

        # Time.
        self.has_room = True
        """Whether the disk has room for the record of a leader. Without it a member does not campaign, and a leader
        hands over."""
        self.wall_us = 0
        self.patience = Patience(
            options.election_timeout_ticks, options.election_stretch_max * options.election_timeout_ticks
        )
        self.ticks_since_leader = 0
        """Ticks since the election timer was restarted by a message of the leader, a campaign or a vote."""
        self.leaderless_ticks = 0
        """Ticks since this member last had a leader."""
        self.now_us = 0
        """The uptime of the machine at the beginning of the present turn, in microseconds; only leases use it."""
        self.promised_until_us = 0
        """The uptime before which this member helps to elect no other leader; see ``lease``."""
        self.held_back_us = stored.promised_us if stored.term > 0 else 0
        """The length of the promise from the start of this process, until the first turn has read the clock."""
        self.last_leader: tuple[Term, NodeId | None] = (Term(0), None)
        """The term and the source of the last message of a leader, even if it was given up since."""
        self.ticks_since_message = 0
        """Ticks since that message."""
        self.vote_term = Term(0)
        """The latest term in which this member has asked for votes; 0 = none since it started."""
        self.vote_ticks = 0
        """Ticks since then."""
        self.election_ticks = 1 if options.campaign_at_once else self.draw_election_ticks()

        self.output = Ready()
        """The next Ready, as far as it is filled."""

    def become(self, state: Following | Campaign | Leading) -> None:
        """Change the role, or the leader that is followed: ``state`` replaces all state of the role before."""
        self.state = state
        self.leader = state.leader
        self.leader_durable_end = Index(0)

    # -- Derived from the state -----------------------------------------------------------------------------

    @property
    def leading(self) -> Leading:
        """The state of the leader; this member must lead. On hot paths narrow ``state`` instead, to save the call."""
        assert isinstance(self.state, Leading), f"{self.me} does not lead term {self.term}"
        return self.state

    @property
    def membership(self) -> Membership:
        """The membership in force: the newest one in the log, committed or not."""
        return self.memberships[-1].membership

    @property
    def role(self) -> Role:
        """The role; see :func:`role_of`. A member may lead or campaign until its removal is committed."""
        if isinstance(self.state, Leading):
            return Role.LEADER
        if isinstance(self.state, Campaign):
            return Role.CANDIDATE
        return role_of(self.membership, self.me, self.leader, campaigning=False)

    @property
    def lifecycle(self) -> Lifecycle:
        """RUNNING once a membership record of the present term is known to be committed; later ones change nothing."""
        entry = self.memberships[0]  # The newest committed one, or the one from before.
        is_committed = 0 < entry.index < self.log.commit_end and entry.term == self.term
        is_led = self.announced_number > 0 or self.leader == self.me
        return Lifecycle.RUNNING if is_committed and is_led else Lifecycle.CONFIGURING

    @property
    def advertised(self) -> TermHistory:
        """The part of the history that the durable log has reached (rule 1). It is computed, never stored."""
        return self.history.advertised(self.log.durable_end)

    @property
    def pair(self) -> tuple[Term, Index]:
        """The advertised pair (last term, end). Voters compare this pair, never the lengths of logs."""
        return self.advertised.last_term, self.log.durable_end

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is durable. A vote, a campaign and an announcement wait for it (rule 2)."""
        return self.log.durable_end == self.log.end

    @property
    def has_live_leader(self) -> bool:
        """Whether the leader sent a message, or this leader had its quorum, within an election timeout.

        Then this member gives no votes (the other half of check-quorum).
        """
        state = self.state
        ticks = state.ticks_since_check if isinstance(state, Leading) else self.ticks_since_leader
        return self.leader is not None and ticks < self.patience.ticks

    @property
    def is_newcomer(self) -> bool:
        """Whether no membership in this log names this member's own disk.

        Then no acknowledgement of this member counts (``standing.counting_ends``), and it cannot determine the members
        of its group, because its log may hold no membership yet, and the settings name only the first members.
        """
        return not any(self.me in entry.membership.incarnations for entry in self.memberships)

    def is_known(self, member: NodeId) -> bool:
        """Return whether ``member`` belongs to a membership of this log, from the committed one on.

        Earlier memberships are included, because a later record may be cut, and then an earlier one is in force again.
        So are both halves of a joint one.
        """
        return any(member in entry.membership.addresses for entry in self.memberships)

    # -- Moves ----------------------------------------------------------------------------------------------

    def draw_election_ticks(self) -> int:
        """Draw the next election timeout, in ticks. It is random each time, so that split votes do not repeat."""
        if self.options.campaign_at_once and self.term == 0:
            return self.options.heartbeat_ticks  # In a new group it asks again soon, because the others may start late.
        return self.entropy.randrange(self.patience.ticks, 2 * self.patience.ticks)

    def restart_election_timer(self) -> None:
        """Restart the timer, with a new random timeout."""
        self.ticks_since_leader = 0
        self.election_ticks = self.draw_election_ticks()

    def note_vote_delay(self, message: VoteResponse) -> None:
        """Note the delay of a vote of this term, even if it is too late to count."""
        if message.term == self.vote_term and message.source != self.me:
            self.patience.note(message.source, self.vote_ticks)

    def send_after_durable(self, message: Message) -> None:
        """Send ``message`` once all writes handed out so far, and in this turn, are durable."""
        self.output.messages_after_durable.append(message)

    def store_term(self, term: Term, vote: str) -> None:
        """Set ``term`` and ``vote`` and write them as one durable write."""
        assert term > self.term or (term == self.term and self.vote in ("", vote)), "a vote is given once in a term"
        self.term = term
        self.vote = vote
        if self.output.writes and isinstance(self.output.writes[-1], WriteTerm):
            self.output.writes.pop()
        self.output.writes.append(WriteTerm(term, vote))

    def begin_installing(self) -> None:
        """Answer nothing until the writes that the next Ready hands out are durable."""
        self.installing = True
        self.completions_left = self.unfinished + 1

    def maybe_end_recovery(self) -> None:
        """Write that this member has recovered, once its durable pair is at least the one from before the damage.

        Its acknowledgements count only when that write is durable (rule 17). Until then the disk names the old pair,
        and if the disk lost data again, that pair would not cover the records that this member acknowledges now.
        Reaching the leader's commit end is not enough, because an earlier acknowledgement of this member may be the
        very one that commits a later record.
        """
        is_ending = self.recovery_completions_left > 0
        if self.recovering_until is None or is_ending or self.installing:
            return
        if not standing.has_regained(self.pair, self.recovering_until):
            return
        self.recovery_completions_left = self.unfinished + 1
        self.output.writes.append(EndRecovery())

    def bound_recovery(self, announcement: Announcement) -> None:
        """Lower ``recovering_until``, the pair that this member must regain, to the ``leader_end`` of ``announcement``.

        The lower pair covers all lost records, because the leader of this term had sent every record that this member
        acknowledged in it, and a leader's log only grows in its term. So the lost end is at most ``leader_end``, which
        the leader read after this process had started.
        Acknowledgements of earlier terms were synced before the history of this term was stored. The lower pair is not
        stored, because after a restart the next announcement brings it again.
        """
        if self.recovering_until is None or not self.life or announcement.life != self.life:
            return
        if self.recovering_until[0] == self.term:
            self.recovering_until = min(self.recovering_until, (self.term, announcement.leader_end))

    def store_history(self, history: TermHistory) -> None:
        """Set ``history`` and write it."""
        self.history = history
        self.output.writes.append(WriteHistory(history))

    def append(self, *batches: Batch) -> None:
        """Append ``batches`` to the log and write them; a membership in one is in force from there (rule 15)."""
        self.log.append(*batches)
        for batch in batches:
            if batch.log_time > self.log_time:
                self.log_time = batch.log_time
            if batch.kind is Kind.MEMBERSHIP:
                membership = Membership.decode(batch.values()[0])
                entry = MembershipEntry(batch.first_index, batch.term, membership)
                self.memberships.append(self.readdressing.entry(entry))
        if not (self.output.writes and isinstance(self.output.writes[-1], AppendLog)):
            self.output.writes.append(AppendLog([]))
        write = self.output.writes[-1]
        assert isinstance(write, AppendLog)
        write.batches.extend(batches)

    def truncate(self, end: Index) -> None:
        """Cut the log in memory; a membership beyond the cut is not in force any more (rule 15)."""
        self.log.truncate(end)
        while self.memberships[-1].index >= end:
            self.memberships.pop()

    def forget_committed_memberships(self) -> None:
        """Drop all memberships before the newest committed one, because they cannot come into force again."""
        while len(self.memberships) > 1 and self.memberships[1].index < self.log.commit_end:
            del self.memberships[0]

    def durable_viewstamp(self) -> Viewstamp:
        """Return the viewstamp by which the completion of this turn's writes is reported (rule 9).

        It holds the last index of the log and the term under which its end was *accepted*, not the term in the
        record's header, because the same record, same term and index, can be cut and appended again under a later
        leader, and a completion of the first write would then acknowledge the second.
        """
        return _make(Viewstamp, (self.accept_term, self.log.end - 1))

    def answer_term(self, message: Message) -> None:
        """Send the present term to the sender of a lower one (rule 13)."""
        self.output.messages.append(TermResponse(source=self.me, target=message.source, term=self.term))

    def stash_until_synced(self, message: Message) -> None:
        """Keep a request until the log is synced. Only the latest of each kind from each member is kept, as a bound."""
        self.stash[type(message), message.source] = message

    def refuse(self, source: NodeId, rule: str, complaint: str) -> NoReturn:
        """Refuse a message that breaks ``rule``. Must be called before the message has changed anything here.

        Raises:
          BrokenRuleError: always. The caller drops the message, closes its connection, and continues.
        """
        raise BrokenRuleError(
            f"{self.me} in term {self.term}: {complaint} (rule {rule})",
            source=source,
            rule=rule,
            remedy="a member broke the protocol, or another process uses its name; the message was dropped",
        )

    def contradict(self, complaint: str) -> NoReturn:
        """Stop, because a leader's log contradicts what is committed here.

        Raises:
          ContradictionError: always. The node stops: nothing that it has acknowledged may be cut or replaced.
        """
        raise ContradictionError(
            f"{self.me} in term {self.term}: {complaint}",
            remedy="this member or the leader has lost or invented records; keep the data of all nodes and report it",
        )
