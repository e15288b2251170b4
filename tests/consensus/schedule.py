"""Random schedules: one seed decides every event of a group, by the weights of a mix."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, replace

from tests.consensus.group import Group, Member, age
from viewstamp.consensus.membership import AddMember, Change, Membership, RemoveMember
from viewstamp.consensus.messages import Announcement, AnnouncementResponse, AppendRequest, AppendResponse, Message
from viewstamp.consensus.state import RaftOptions
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.ids import Index, NodeId
from viewstamp.wire.batch import Kind, build_batch

__all__ = ["MIXES", "Mix", "Schedule"]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Weights of the events, and some chances in percent."""

    members: tuple[int, ...] = (3,)
    learners: int = 0
    steps: int = 600
    deliver: int = 100
    drop: int = 3
    duplicate: int = 3
    write: int = 40
    notify: int = 40
    tick: int = 8
    campaign: int = 1
    """An election timeout expires, at one member and at all that would otherwise follow its leader."""
    propose: int = 12
    read: int = 3
    crash: int = 2
    restart: int = 6
    partition: int = 1
    heal: int = 2
    fifo: int = 30
    """Percent: the oldest message is delivered instead of a random one."""
    sync_only: int = 10
    """Percent: a member starts in the mode that proposes nothing."""
    lose_hint: int = 30
    """Percent: a crash loses the commit hint."""
    episode: int = 3
    """A part of the group is isolated for some time.

    One of its members campaigns, and no faults happen for some events.
    """
    sizes: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 5)
    """Numbers of members in an episode."""
    hold: int = 40
    """Percent: an episode holds back one kind of message."""
    episode_restart: int = 25
    """Percent: a member restarts when an episode begins, with all its writes durable."""
    snapshot: int = 0
    """A member takes a snapshot, and may drop a part of its log; or it fetches or installs an offered one."""
    change: int = 0
    """A leader gets a request for a membership change or a transfer."""
    damage: int = 0
    """A member crashes and loses the end of its log, even acknowledged records; as many at once as may fail."""
    lose: int = 0
    """Members get a report that their leader seems to be dead, rightly or wrongly.

    For a dead leader usually all of them.
    """
    old: int = 0
    """An append or an announcement of a term that its target has left is delivered, if there is one in flight."""
    tell: int = 0
    """A leader is asked to tell members how far it is durable."""


_CALM = Mix(
    steps=30,
    deliver=5,
    drop=0,
    duplicate=0,
    write=5,
    notify=5,
    tick=0,
    campaign=0,
    propose=2,
    read=0,
    crash=1,
    restart=1,
    partition=0,
    heal=0,
    episode=100,
)

MIXES = {
    "even": Mix(),
    "five": Mix(members=(5,), steps=500),
    "sizes": Mix(members=(1, 2, 4), learners=1, steps=400),
    "quiet disk": Mix(write=12, notify=12, propose=20),
    "crashes": Mix(crash=8, restart=20, campaign=3),
    "old messages": Mix(fifo=0, duplicate=25, drop=0, crash=3, campaign=4, old=20),
    "sync only": Mix(sync_only=60, campaign=2, crash=2, restart=10, episode=20, steps=300),
    "episodes": Mix(episode=30, steps=200, old=5),
    # Only episodes of one or two members: elections by minorities, as in figure 8.
    "pairs": replace(_CALM, sizes=(1, 2, 2, 3), hold=30, episode_restart=20, sync_only=0, old=10),
    "snapshots": Mix(snapshot=40, crash=3, restart=5, episode=4, partition=3, heal=1, propose=25),
    "snapshots of five": Mix(members=(5,), snapshot=40, steps=600, crash=4, restart=5, episode=5, old=5, propose=25),
    "changes": Mix(change=10, steps=900, crash=1, episode=1, campaign=1),
    "changes of five": Mix(members=(5,), change=8, steps=900, crash=2, restart=10, episode=1, campaign=1, snapshot=5),
    "damage": Mix(damage=8, crash=2, restart=15, episode=2, propose=20),
    "damage of five": Mix(members=(5,), damage=10, crash=3, restart=20, episode=3, propose=20, campaign=2, steps=900),
    "changes and damage": Mix(members=(3, 5), change=6, damage=5, crash=2, restart=15, campaign=2, steps=900),
    # Members with such a report campaign within a few ticks, often several at once, and often while the leader leads.
    "losses": Mix(members=(3, 5), lose=20, tick=25, campaign=0, crash=3, restart=8, episode=2, change=2, snapshot=15),
    "notices": Mix(tell=20, read=15, propose=20),
    "notices and old messages": Mix(tell=20, read=10, propose=20, fifo=0, duplicate=25, drop=0, campaign=4, old=20),
    "notices and damage": Mix(tell=20, read=5, damage=8, crash=2, restart=15, episode=2, propose=20, snapshot=10),
    "notices and changes": Mix(tell=20, read=5, change=10, steps=900, crash=1, episode=2, campaign=1, propose=15),
    "notices in episodes": Mix(tell=15, episode=30, steps=200, old=5),
    "figure 8": replace(_CALM, sizes=(2,), hold=80, episode_restart=60, sync_only=30),
}
"""The mixes under which the core without mutants must break no invariant."""


class Schedule:
    """One random run. ``trace`` describes its events, for the reader of a failure."""

    def __init__(self, mix: Mix, seed: int) -> None:
        self.mix = mix
        self.entropy = entropy = random.Random(seed)
        self.options = RaftOptions(
            election_timeout_ticks=10,
            heartbeat_ticks=2,
            append_bytes_max=entropy.choice((150, 400, 4000)),
            in_flight_bytes_max=entropy.choice((150, 600, 8000)),
            uncommitted_bytes_max=5000,
            cache_bytes_max=entropy.choice((0, 300, 100_000)),
        )
        count = entropy.choice(mix.members)
        self.group = Group(
            count,
            options=self.options,
            learners=[f"l{number}" for number in range(1, mix.learners + 1)],  # type: ignore[misc]
            seed=entropy.getrandbits(32),
            is_quick_disk=False,
        )
        self.cut: set[tuple[str, str]] = set()
        self.trace: list[str] = []
        self.nodes = sorted(self.group.members)
        self.counts = {
            "changes": 0,
            "damaged": 0,
            "committed": 0,
            "elections": 0,
            "crashes": 0,
            "reads": 0,
            "installed": 0,
            "losses": 0,
            "found": 0,
        }
        self._actions = ("deliver", "drop", "duplicate", "write", "notify", "tick", "campaign", "propose", "read",
                         "crash", "restart", "partition", "heal", "episode", "old", "snapshot", "change",
                         "damage", "lose", "tell")  # fmt: skip
        self._weights = [getattr(mix, action) for action in self._actions]

    def run(self) -> Schedule:
        """Run all steps; raises the error of an invariant or of the core."""
        for action in self.entropy.choices(self._actions, self._weights, k=self.mix.steps):
            getattr(self, f"_{action}")()
        return self

    def heal_and_finish(self) -> None:
        """Stop all faults and let time pass: the group must get a leader and commit a new record."""
        self.cut.clear()
        group = self.group
        group.is_quick_disk = True
        for member in group.members.values():
            group.options[member.me] = replace(self.options, sync_only=False)
            if not member.is_up or member.core.options.sync_only:
                group.restart(member.me)
            group.sync(member.me)
        for _ in range(40):
            group.run(5)
            running = [me for me in group.leaders() if group.is_running(me)]
            if running:
                leader = max(running, key=lambda me: group[me].core.term)
                with suppress(UnavailableError):  # It may be transferring its leadership.
                    group.propose(leader, b"last")
                group.run(5)
                membership = group[leader].core.membership
                members = [group[me] for me in membership.addresses]
                ends = {member.core.log.commit_end for member in members}
                is_whole = not membership.is_joint and all(each.core.recovering_until is None for each in members)
                if ends == {group[leader].core.log.end} and is_whole and all(group.is_running(m.me) for m in members):
                    return
        raise AssertionError(
            "no progress: "
            + ", ".join(f"{m.me} {m.core.role.name} {m.core.term} {m.core.log.commit_end}" for m in group.up())
        )

    # -- Events ---------------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        self.trace.append(text)

    def _any(self, members: list[Member]) -> Member | None:
        return self.entropy.choice(members) if members else None

    def _pick(self) -> Message | None:
        messages = self.group.messages
        if not messages:
            return None
        return messages[0] if self.entropy.randrange(100) < self.mix.fifo else self.entropy.choice(messages)

    def _deliver(self, *, keep: bool = False) -> None:
        first = self._pick()
        if first is None:
            return
        batch = [first]
        if self.entropy.randrange(4) == 0:  # Deliver several messages in one turn.
            others = self.group.matching(target=first.target)
            batch = [first, *(m for m in others[:3] if m is not first)]
        for message in batch:
            if not keep:
                self.group._take(message)
        batch = [message for message in batch if (message.source, message.target) not in self.cut]
        self._note(f"{'double' if keep else '<'} {batch}")
        self.group.step(first.target, *batch)

    def _duplicate(self) -> None:
        self._deliver(keep=True)

    def _drop(self) -> None:
        message = self._pick()
        if message is not None:
            self._note(f"drop {message}")
            self.group._take(message)

    def _write(self) -> None:
        member = self._any([member for member in self.group.up() if member.queue])
        if member is not None:
            self._note(f"{member.me} writes {list(member.queue[0].writes)[:1]}")
            self.group.write(member.me)
            self.group.check()

    def _notify(self) -> None:
        member = self._any([member for member in self.group.up() if member.notices or member.fetches])
        if member is not None:
            self._note(f"{member.me} gets a completion: {[n.notice for n in member.notices][:1]}")
            self.group.notify(member.me, 1)
            if self.entropy.randrange(2):
                self.group.answer_fetches(member.me)

    def _tick(self) -> None:
        count = self.entropy.choice((1, 1, 1, 2))
        for member in self.group.up():
            if self.entropy.randrange(5):
                self._note(f"{member.me} ticks {count}")
                self.group.tick(member.me, count)

    def _tell(self) -> None:
        """Ask a leader to tell the others, and count the members that are ahead of their leaders."""
        self.counts["found"] += sum(member.core.ahead_end > 0 for member in self.group.up())
        member = self._any([member for member in self.group.up() if member.core.leader == member.me])
        if member is not None and member.raft is not None:
            self._note(f"{member.me} is to tell how far it is durable")
            member.raft.tell_durable_end(frozenset(self.nodes))
            self.group.after(member.me)

    def _campaign(self) -> None:
        member = self._any(self.group.up())
        if member is None or member.core.leader == member.me:
            return
        self._note(f"{member.me} campaigns")
        self.counts["elections"] += 1
        for other in self.group.up():
            if self.entropy.randrange(4):
                age(other.core, 10)
        self.group.campaign(member.me)

    def _propose(self) -> None:
        leaders = [member for member in self.group.up() if member.core.leader == member.me]
        member = self._any(leaders)
        if member is not None:
            self._propose_to(member.me)

    def _propose_to(self, me: NodeId) -> None:
        member = self.group[me]
        if member.raft is not None:
            values = [b"%d" % self.entropy.randrange(10**6)] * self.entropy.choice((1, 1, 2, 3))
            try:
                member.raft.propose(build_batch(values))
            except UnavailableError:
                return
            self._note(f"{member.me} proposes {len(values)}, ends at {member.core.log.end}")
            self.group.after(member.me)

    def _read(self) -> None:
        member = self._any(self.group.up())
        if member is not None:
            self.counts["reads"] += 1
            self.group.read(member.me)

    def _crash(self) -> None:
        member = self._any(self.group.up())
        if member is None:
            return
        waiting = sum(len(pending.writes) for pending in member.queue)
        kept = self.entropy.randrange(waiting + 1)
        self._note(f"{member.me} crashes, {kept} of {waiting} writes kept")
        self.counts["crashes"] += 1
        torn = self.entropy if self.entropy.randrange(2) else None
        self.group.crash(member.me, durable_writes=kept, torn=torn)
        if self.entropy.randrange(100) < self.mix.lose_hint:
            ends = [Index(1), *(b.end for b in member.disk.batches if b.end <= member.disk.commit_hint)]
            member.disk.commit_hint = self.entropy.choice(ends)

    def _restart(self) -> None:
        member = self._any([member for member in self.group.members.values() if not member.is_up])
        if member is not None:
            sync_only = self.entropy.randrange(100) < self.mix.sync_only
            self._note(f"{member.me} restarts{' (sync only)' if sync_only else ''}: {member.disk.durable()}")
            self.group.start(member.me, options=replace(self.options, sync_only=sync_only))

    def _partition(self) -> None:
        members = list(self.group.members)
        if self.entropy.randrange(2):
            first, second = self.entropy.choice(members), self.entropy.choice(members)
            self.cut.add((first, second))
            return
        alone = self.entropy.choice(members)
        for other in members:
            self.cut |= {(alone, other), (other, alone)}

    def _heal(self) -> None:
        self.cut.clear()

    def _change(self) -> None:
        """Request any change from a leader, which may refuse it."""
        group, entropy = self.group, self.entropy
        leader = self._any([member for member in group.up() if member.core.leader == member.me])
        is_recovering = any(member.disk.recovering_until is not None for member in group.members.values())
        if leader is None or leader.raft is None or is_recovering:
            return  # Fewer voters tolerate fewer failures; with the recovering ones, it may be one too many.
        members = sorted(leader.core.membership.addresses)
        node = entropy.choice([*members, NodeId(f"x{entropy.randrange(3)}")])
        wanted: Change | None = None
        match entropy.randrange(4):
            case 0 if len(leader.core.membership.voters) > 2:
                wanted = RemoveMember(node)
            case 1 | 2:
                replaced = entropy.choice([None, None, *sorted(leader.core.membership.voters)])
                wanted = AddMember(node, f"at-{node}", entropy.randrange(4) > 0, replaced)
        try:
            if wanted is None:
                self._note(f"{leader.me} hands over to {leader.raft.transfer()}")
            else:
                self._note(f"{leader.me}: {wanted} at {leader.raft.change(wanted)}")
                self.counts["changes"] += 1
                if node not in group.members:
                    group.add(node)
        except (UnavailableError, RequestError):
            return
        group.after(leader.me)

    def _damage(self) -> None:
        """Let a member lose the end of its log.

        The number of damaged members never exceeds the tolerated failures of any membership that may be in force.
        """
        group, entropy = self.group, self.entropy
        member = self._any(list(group.members.values()))
        known = [group.hint, *(entry.membership for each in group.up() for entry in each.core.memberships)]
        known += [
            Membership.decode(batch.values()[0])
            for each in group.members.values()
            for batch in each.disk.batches
            if batch.kind is Kind.MEMBERSHIP
        ]
        tolerated = min((len(voters) - 1) // 2 for m in known for voters in (m.voters, m.outgoing) if voters)
        damaged = {each.me for each in group.members.values() if each.disk.recovering_until is not None}
        if member is None or len(damaged | {member.me}) > tolerated or not member.disk.batches:
            return
        if member.is_up:
            group.crash(member.me)
        before = member.disk.recovering_until
        end = entropy.choice([batch.first_index for batch in member.disk.batches])
        member.disk.damage(end, is_end_known=entropy.randrange(3) > 0)
        if before is not None:
            member.disk.recovering_until = before  # Nothing that it has sent since counts, so nothing raises this.
        self.counts["damaged"] += 1
        self._note(f"{member.me} loses everything from {end} on, recovering until {member.disk.recovering_until}")

    def _lose(self) -> None:
        member = self._any(self.group.up())
        if member is None or member.core.leader is None:
            return
        leader = member.core.leader
        is_alone = self.entropy.randrange(3) == 0
        for me in [member.me] if is_alone else [each.me for each in self.group.up() if each.me != leader]:
            self._note(f"{me} gets a report that {leader} seems to be dead")
            self.group.lose(me, leader)
        self.counts["losses"] += 1

    def _old(self) -> None:
        group, entropy = self.group, self.entropy
        found = [
            message
            for message in group.messages
            if isinstance(message, AppendRequest | Announcement)
            and group[message.target].is_up
            and message.term < group[message.target].core.term
        ]
        if found:
            message = entropy.choice(found)
            self._note(f"old {message}")
            if entropy.randrange(2):
                group._take(message)
            group.step(message.target, message)

    def _snapshot(self) -> None:
        group, entropy = self.group, self.entropy
        wanting = [member for member in group.up() if member.offer or member.fetched]
        if wanting and entropy.randrange(3):
            self._take_over(entropy.choice(wanting))
            return
        member = self._any(group.up())
        if member is not None:
            taken = group.snapshot(member.me)
            starts = [batch.first_index for batch in member.disk.batches]
            first_index = entropy.choice(starts) if starts and entropy.randrange(3) == 0 else None
            self._note(f"{member.me} snapshot {taken and taken.point.end}, trims to {first_index or 'its end'}")
            group.trim(member.me, first_index)

    def _take_over(self, member: Member) -> None:
        if member.offer is not None and self.group.fetch_snapshot(member.me):
            self._note(f"{member.me} has fetched {member.fetched and member.fetched.point.end}")
        elif member.fetched is not None:
            end = member.fetched.point.end
            taken = self.group.install(member.me)
            self._note(f"{member.me} installs {end}: {taken}")
            self.counts["installed"] += taken is True

    def _episode(self) -> None:
        """Isolate a part of the group for some time; one kind of message may be held back meanwhile."""
        group, entropy = self.group, self.entropy
        voters = sorted(
            entropy.sample(sorted(group.hint.voters), min(entropy.choice(self.mix.sizes), len(group.hint.voters)))
        )
        for me in voters:
            if not group[me].is_up or entropy.randrange(100) < self.mix.episode_restart:
                if group[me].is_up:
                    group.sync(me)
                sync_only = entropy.randrange(100) < self.mix.sync_only
                group.restart(me, options=replace(self.options, sync_only=sync_only))
            core = group[me].core
            age(core, 10)
        stands = entropy.choice(voters)
        held = entropy.choice((None, AppendRequest, AppendResponse, Announcement, AnnouncementResponse))
        held = held if entropy.randrange(100) < self.mix.hold else None
        self._note(f"episode of {voters}, {stands} stands, held back: {held and held.__name__}")
        if group[stands].core.leader != stands:
            group.campaign(stands)
        for _ in range(entropy.randrange(60)):
            match entropy.randrange(10):
                case 0:
                    self._propose_to(entropy.choice(voters))
                case 1 | 2:
                    group.sync(entropy.choice(voters), 1)
                case _:
                    self._deliver_among(voters, held)

    def _deliver_among(self, chosen: list[NodeId], held: type[Message] | None) -> None:
        group = self.group
        for message in group.messages:
            if message.source in chosen and message.target in chosen and not (held and isinstance(message, held)):
                group._take(message)
                self._note(f"< {message}")
                group.step(message.target, message)
                return
        for me in chosen:
            group.sync(me)


def run(mix: str | Mix, seed: int, *, finish: bool = False) -> Schedule:
    """Run one seed of a mix."""
    schedule = Schedule(MIXES[mix] if isinstance(mix, str) else mix, seed)
    schedule.run()
    if finish:
        schedule.heal_and_finish()
    return schedule
