"""The state of one member: what is stored, what every role has, and one value with what its present role has.

``Core.state`` is a :class:`Following`, a :class:`Campaign` or a :class:`Leading`. :meth:`Core.become` replaces it as a
whole at each change of role, leader or term. So a role starts with the defaults of its class, nothing has to be
cleared, and what belongs to one role cannot be read in another.

The decisions stand in ``follower``, ``candidate``, ``leader``, ``reads`` and ``reconfigure``, whose functions take a
:class:`Core`. Nothing here awaits, or uses a clock, a disk or a socket.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NoReturn, Protocol

from viewstamp.consensus import standing
from viewstamp.consensus.log import RaftLog
from viewstamp.consensus.membership import Membership, MembershipEntry
from viewstamp.consensus.messages import Announcement, Message, TermResponse, VoteResponse
from viewstamp.consensus.patience import Patience
from viewstamp.consensus.progress import Progress
from viewstamp.consensus.ready import AppendLog, EndRecovery, Ready, WriteHistory, WriteTerm
from viewstamp.consensus.roles import Lifecycle, Role, role_of
from viewstamp.consensus.term_history import TermHistory
from viewstamp.enums import fast_members
from viewstamp.errors import BrokenRuleError, ContradictionError
from viewstamp.ids import Index, NodeId, Term, Viewstamp
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
"""Makes a named tuple as its class does, but without a Python function: each round makes one on every member."""


class Entropy(Protocol):
    """The only randomness of the core: election timeouts."""

    def randrange(self, start: int, stop: int) -> int:
        """Return a number in ``[start, stop)``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftOptions:
    """Settings of the core. Durations are in ticks."""

    election_timeout_ticks: int = 30
    """A follower campaigns after a random time in [this, 2 * this) without its leader; see ``Patience``."""
    election_stretch_max: int = 10
    """On a slow network the election timeout grows up to this many times the setting."""
    heartbeat_ticks: int = 5
    """Ticks between two heartbeats of a leader."""
    append_bytes_max: int = 1024 * 1024
    """The most bytes of batches in one AppendRequest; a larger single batch goes alone."""
    in_flight_bytes_max: int = 8 * 1024 * 1024
    """A member that has not acknowledged this many bytes is sent no more: the bound is this plus one AppendRequest."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """A leader refuses proposals above this many bytes that are not committed."""
    cache_bytes_max: int = 16 * 1024 * 1024
    """Bytes of the newest batches that stay in memory; what is not applied and durable stays in any case."""
    campaign_at_once: bool = False
    """Campaign at the first tick: the hinted leader of a new group."""
    may_lose_acknowledged: bool = False
    """Whether this member acknowledges before it syncs (interval mode). If it is then told to cut committed records, it
    asks the node to set its log aside; in sync mode such a message can only come from a broken peer."""
    wait_all_ticks: int = 30_000
    """How long a candidate waits for every voter to answer before it counts the votes of members that lost power."""
    sync_only: bool = False
    """Propose nothing when leading: bring a quorum to the own term, commit what they hold (Neon's sync-safekeepers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a member finds on its disk when it starts.

    ``tail`` holds the batches in memory: all from ``commit_end`` on at least. ``memberships`` are those of the
    log, in order, preceded by the hint (or the one at the trimmed prefix). ``first_index`` is where the log begins.
    ``recovering_until`` is the pair that this member advertised before its disk lost something, at least; None =
    nothing was lost, or all of it has been regained.
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
    """Whether ``recovering_until`` is due to a power loss in interval mode: what was synced is there, the vote too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPoint:
    """What a snapshot says of the log: it stands for everything before ``end``, all of it committed.

    ``last_term`` is the term of the last record covered, ``history`` the terms up to there, ``membership`` the one in
    force there, ``log_time`` that of the last batch.
    """

    end: Index
    last_term: Term
    history: TermHistory
    membership: MembershipEntry
    log_time: int


# -- What one role has -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Following:
    """A follower, a learner, or a member that takes no part, all of which do the same with each message."""

    leader: NodeId | None = None
    """Whom it follows in this term; None = it has received nothing from a leader of this term since it follows."""


@fast_members
class CampaignPhase(Enum):
    """How far a campaign is: a pre-vote changes nothing on any member, a vote begins a new term."""

    PRE_VOTE = "pre-vote"
    VOTE = "vote"


@dataclass(slots=True, eq=False)
class Campaign:
    """A candidate, in one phase of its campaign; the vote that follows a pre-vote is a value of its own."""

    leader: ClassVar[None] = None
    phase: CampaignPhase
    votes: dict[NodeId, bool] = field(default_factory=dict)
    """Whether each member that answered grants its vote, or its pre-vote."""
    recovering_votes: set[NodeId] = field(default_factory=set)
    """Those of ``votes`` that came from members which lost power and have not regained their log."""
    vote_responses: dict[NodeId, VoteResponse] = field(default_factory=dict)


@dataclass(slots=True)
class PendingRead:
    """A read on the leader: who asked (None = this node), and from which round a response confirms it."""

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
    """Every other member, and those that were removed and may not have received the record of that yet."""
    vote_responses: dict[NodeId, VoteResponse] = field(default_factory=dict)
    """Those of its campaign: the announcements start from the histories in them."""
    elected_without: tuple[NodeId, ...] = ()
    """The voters that did not answer when this leader was elected by votes of members that had lost power, so that
    acknowledged records may be lost; () = their votes were not needed."""
    is_reached: bool = False
    """Whether a quorum has reached ``term_start``: only then is anything committed, or read (rule 7)."""
    uncommitted_bytes: int = 0
    ticks_since_check: int = 0
    """Ticks since it last checked that a quorum answers."""
    heartbeat_elapsed: int = 0
    """Ticks since the last heartbeat that was due."""
    full_ticks: int = 0
    """Ticks without a break for which there was no room on its disk."""
    transferee: NodeId | None = None
    """The member that is to lead next. Until it has everything and stands, or an election timeout is over, nothing is
    proposed."""
    transfer_ticks: int = 0
    """Ticks since the transfer began."""
    round: int = 0
    """The number of the newest round of heartbeats that confirms reads."""
    reads: list[PendingRead] = field(default_factory=list)
    reads_waiting: list[tuple[int, NodeId | None]] = field(default_factory=list)
    """Reads without a round: they came this turn, or before a quorum reached the term start."""


# -- The member --------------------------------------------------------------------------------------------------------


class Core:
    """The state of one member.

    Invariants (asserted by ``sim/checkers``, after every event):
      * HistoryTrue: ``history.term_at(i)`` is the term in the header of the batch that holds i
      * ``accept_term`` is the term under which the newest batches were taken: announced to this member, or led by it
      * ``announced_number`` > 0 exactly while appends of ``term`` may be accepted (or ``installing``)
      * ``leader`` is ``state.leader``; it is this member exactly if ``state`` is a :class:`Leading`
    """

    def __init__(self, me: NodeId, options: RaftOptions, stored: Stored, entropy: Entropy) -> None:
        self.me = me
        self.options = options
        self.entropy = entropy
        self.state: Following | Campaign | Leading = Following()
        """What the present role has; only :meth:`become` replaces it."""
        self.leader: NodeId | None = None
        """The leader of ``term``, None = it is not known. The same as ``state.leader``, and shorter to reach."""

        # What is stored, as it will be once the writes handed out so far are durable.
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
        self.memberships = list(stored.memberships)
        self.first_index = stored.first_index
        """Where the log on disk begins: what is before it stands in a snapshot only."""
        self.incarnations: dict[NodeId, str] = {}
        """The disks of the members that were met, and the own one; {} = disks have no names here."""
        self.base: tuple[Index, Term] | None = None
        """(end, last term) of the snapshot that is offered to members that need what is before ``first_index``."""
        self.recovering_until = stored.recovering_until
        """The pair to be regained before anything that this member sends counts (rule 17); None = it counts."""
        self.lost_power = stored.lost_power
        """Whether that is due to a power loss in interval mode: then it votes, and its votes say so."""
        self.recovery_completions_left = 0
        """Disk completions still to arrive before the end of recovering is durable; 0 = no such write is in flight."""
        self.life = entropy.randrange(1, 1 << 62) if stored.lost_power else 0
        """Which start of this member it is, drawn where it lost power; the leader's announcement has to repeat it."""
        self.unfinished = 0
        """Readys that were handed out and wait for the disk."""

        # The announcement of the present term. It outlasts a pre-vote, so it belongs to no role.
        self.accept_term = Term(0)
        self.announced_number = 0
        """The number of the announcement of ``term`` that this member has taken; 0 = none since it started."""
        self.installing = False
        """True from taking an announcement or a snapshot, or winning, until its writes are durable. Meanwhile this
        member answers nothing (rule 5)."""
        self.completions_left = 0
        """While ``installing``: disk completions until that of its writes. Earlier ones do not end it."""
        self.stash: dict[tuple[type[Message], NodeId], Message] = {}
        """Requests that wait until the log is synced: the latest of each kind from each member."""

        # Time.
        self.has_room = True
        """Whether the disk has room for the record of a leader: without it none stands, and a leader hands over."""
        self.wall_us = 0
        self.patience = Patience(
            options.election_timeout_ticks, options.election_stretch_max * options.election_timeout_ticks
        )
        self.ticks_since_leader = 0
        """Ticks since the election timer began: with each message of the leader, each campaign and each vote."""
        self.leaderless_ticks = 0
        """Ticks since this member last had a leader."""
        self.last_leader: tuple[Term, NodeId | None] = (Term(0), None)
        """The term and the leader of the last message of a leader, whatever has become of it since."""
        self.ticks_since_message = 0
        """Ticks since that message."""
        self.vote_term = Term(0)
        """The latest term in which this member has asked for votes; 0 = none since it started."""
        self.vote_ticks = 0
        """Ticks since then."""
        self.election_ticks = 1 if options.campaign_at_once else self.draw_election_ticks()

        self.output = Ready()
        """What the next Ready will hold."""

    def become(self, state: Following | Campaign | Leading) -> None:
        """Take another role, or follow another leader: ``state`` replaces all that belonged to the role before."""
        self.state = state
        self.leader = state.leader

    # -- What follows from the state ------------------------------------------------------------------------

    @property
    def leading(self) -> Leading:
        """What this member has as the leader; it must lead. Where each call counts, narrow ``state`` instead."""
        assert isinstance(self.state, Leading), f"{self.me} does not lead term {self.term}"
        return self.state

    @property
    def membership(self) -> Membership:
        """The membership in force: the newest one in the log, committed or not."""
        return self.memberships[-1].membership

    @property
    def role(self) -> Role:
        """Derived; see :func:`role_of`. Who is being removed leads, or stands, until its removal is committed."""
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
        """The part of the history that the durable log has reached (rule 1): computed, never stored."""
        return self.history.advertised(self.log.durable_end)

    @property
    def pair(self) -> tuple[Term, Index]:
        """The advertised pair (last term, end): what a voter compares. Never "the longer log"."""
        return self.advertised.last_term, self.log.durable_end

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is durable: a vote, a campaign and an announcement wait for it (rule 2)."""
        return self.log.durable_end == self.log.end

    @property
    def has_live_leader(self) -> bool:
        """Whether a leader sent something, or this leader had its quorum, within an election timeout.

        Then votes are withheld (check-quorum's other half).
        """
        state = self.state
        ticks = state.ticks_since_check if isinstance(state, Leading) else self.ticks_since_leader
        return self.leader is not None and ticks < self.patience.ticks

    @property
    def is_newcomer(self) -> bool:
        """Whether no membership in this log names this member's own disk.

        Then nothing that this member has acknowledged counts (``standing.counting_ends``), and this member cannot know
        who its group is: its log may hold no membership yet, and the settings only say who belonged to it once.
        """
        return not any(self.me in entry.membership.incarnations for entry in self.memberships)

    def is_known(self, member: NodeId) -> bool:
        """Return whether ``member`` belongs to a membership of this log, from the committed one on.

        A later record may be cut, and then an earlier one is in force again. Both halves of a joint one count.
        """
        return any(member in entry.membership.addresses for entry in self.memberships)

    # -- Moves ----------------------------------------------------------------------------------------------

    def draw_election_ticks(self) -> int:
        """Draw the next election timeout, in ticks: redrawn each time, so that split votes do not repeat."""
        if self.options.campaign_at_once and self.term == 0:
            return self.options.heartbeat_ticks  # Alone in a new group: the others may not be up yet, ask again soon.
        return self.entropy.randrange(self.patience.ticks, 2 * self.patience.ticks)

    def restart_election_timer(self) -> None:
        """Restart the timer, with a new random timeout."""
        self.ticks_since_leader = 0
        self.election_ticks = self.draw_election_ticks()

    def note_vote_delay(self, message: VoteResponse) -> None:
        """Note how long a vote of this term took, even if it is too late to count."""
        if message.term == self.vote_term and message.source != self.me:
            self.patience.note(message.source, self.vote_ticks)

    def send_after_durable(self, message: Message) -> None:
        """Send ``message`` when all writes handed out so far, and in this turn, are durable."""
        self.output.messages_after_durable.append(message)

    def store_term(self, term: Term, vote: str) -> None:
        """Take ``term`` and ``vote`` and write them, as one."""
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

        Its acknowledgements count only when that write is durable (rule 17): until then the disk names the old pair,
        which would not cover what this member acknowledges now, should the disk lose something again. Reaching the
        leader's commit end is not enough, because an earlier acknowledgement of this member may be the very one that
        commits a later record.
        """
        is_ending = self.recovery_completions_left > 0
        if self.recovering_until is None or is_ending or self.installing:
            return
        if not standing.has_regained(self.pair, self.recovering_until):
            return
        self.recovery_completions_left = self.unfinished + 1
        self.output.writes.append(EndRecovery())

    def bound_recovery(self, announcement: Announcement) -> None:
        """Lower the pair that has to be regained to what the announcement shows to be possible.

        The leader of this term had sent whatever this member acknowledged in it, and a leader's log only grows in its
        term. So the lost end is at most ``leader_end``, which the leader took after this process had started.
        Acknowledgements of earlier terms were synced before the history of this term was stored. The lower pair is not
        stored, because after a restart the next announcement brings it again.
        """
        if self.recovering_until is None or not self.life or announcement.life != self.life:
            return
        if self.recovering_until[0] == self.term:
            self.recovering_until = min(self.recovering_until, (self.term, announcement.leader_end))

    def store_history(self, history: TermHistory) -> None:
        """Take ``history`` and write it."""
        self.history = history
        self.output.writes.append(WriteHistory(history))

    def append(self, batch: Batch) -> None:
        """Append ``batch`` to the log and write it; a membership in it is in force from here (rule 15)."""
        self.log.append(batch)
        self.log_time = max(self.log_time, batch.log_time)
        if batch.kind is Kind.MEMBERSHIP:
            membership = Membership.decode(batch.values()[0])
            self.memberships.append(MembershipEntry(batch.first_index, batch.term, membership))
        if not (self.output.writes and isinstance(self.output.writes[-1], AppendLog)):
            self.output.writes.append(AppendLog([]))
        write = self.output.writes[-1]
        assert isinstance(write, AppendLog)
        write.batches.append(batch)

    def truncate(self, end: Index) -> None:
        """Cut the log in memory; a membership beyond the cut is not in force any more (rule 15)."""
        self.log.truncate(end)
        while self.memberships[-1].index >= end:
            self.memberships.pop()

    def forget_committed_memberships(self) -> None:
        """Drop memberships that nothing can bring back: all before the newest committed one."""
        while len(self.memberships) > 1 and self.memberships[1].index < self.log.commit_end:
            del self.memberships[0]

    def durable_viewstamp(self) -> Viewstamp:
        """Name the present end of the log for the completion of a write: by the term it was *accepted* under (rule 9).

        Not by the term in the record's header: the same record, same term and index, can be cut and appended
        again under a later leader, and a completion of the first write would then speak for the second.
        """
        return _make(Viewstamp, (self.accept_term, self.log.end - 1))

    def answer_term(self, message: Message) -> None:
        """Send the present term to the sender of a lower one (rule 13)."""
        self.output.messages.append(TermResponse(source=self.me, target=message.source, term=self.term))

    def stash_until_synced(self, message: Message) -> None:
        """Keep a request until the log is synced; one of each kind from each member, so this is bounded."""
        self.stash[type(message), message.source] = message

    def refuse(self, source: NodeId, rule: str, complaint: str) -> NoReturn:
        """Refuse a message that breaks ``rule``. Called before the message has changed anything here.

        Raises:
          BrokenRuleError: always. The caller drops the message, ends its connection, and goes on.
        """
        raise BrokenRuleError(
            f"{self.me} in term {self.term}: {complaint} (rule {rule})",
            source=source,
            rule=rule,
            remedy="a member broke the protocol, or another process passes for one; the message was dropped",
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
