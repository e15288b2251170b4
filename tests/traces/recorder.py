"""Records the steps of the members of a simulated group, for a check against ``Announcement.tla``.

The observer calls no code of the product. It looks at the state of cores and disks, before and after each input of a
core and after each event, and adds a step for each difference. So the order of the steps is the order in which they
happened, and a message is recorded when the core hands it out or, if it has to wait for the disk, when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from viewstamp.consensus.invariants import BatchIdentity
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.messages import (
    Announcement,
    AnnouncementResponse,
    AppendResponse,
    DurableNotice,
    HeartbeatResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Campaign, CampaignPhase, Core, Leading
from viewstamp.ids import GROUP_0, GroupId, Index, NodeId
from viewstamp.node.group import Group
from viewstamp.sim.cluster import Cluster
from viewstamp.wire.batch import Kind

__all__ = ["Recorder", "Step"]

Step = dict[str, Any]
"""The fields of one step: ``kind``, ``member``, and those of the kind in ``AnnouncementTrace.tla``."""

_INPUTS = (
    *("tick", "step", "durable", "propose", "append_checked", "change", "transfer", "lost_leader", "install"),
    "tell_durable_end",
)
_VALUE_MAX = (1 << 31) - 1
"""TLC has integers of 32 bits."""


@dataclass(eq=False)
class _Observed:
    """The last recorded state of one member, in its present life."""

    group: Group
    raft: Raft
    core: Step
    disk: Step
    acknowledged: tuple[int, int] = (0, 0)
    handed: list[Message] = field(default_factory=list)
    """The messages of the present turn that have been recorded."""


class Recorder:
    """Records a group of a cluster, up to ``steps_max`` steps."""

    def __init__(self, cluster: Cluster, steps_max: int, group: GroupId = GROUP_0) -> None:
        self.steps: list[Step] = []
        self.founders: frozenset[NodeId] = frozenset()
        """The voters before the first record."""
        self.steps_max = steps_max
        self._cluster = cluster
        self._group = group
        self._observed: dict[str, _Observed] = {}
        self._lives: dict[str, Raft] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further step is recorded."""
        return len(self.steps) >= self.steps_max

    def after_event(self) -> None:
        """Look at all members."""
        for member in self._cluster.members:
            group = member.node.groups.get(self._group) if member.node is not None else None
            if group is None or group.parts is None or group.wal is None or group.replica is None:
                continue
            raft = group.parts.raft
            name = raft.core.me
            if self._lives.get(name) is not raft:
                self._lives[name] = raft
                self._attach(name, group, raft)
            self._look(name)

    def _attach(self, name: NodeId, group: Group, raft: Raft) -> None:
        core = raft.core
        self.founders = self.founders or frozenset(core.membership.voters)
        seen = _core(core)
        disk = {key: seen[key] for key in ("term", "vote", "hist", "end")}
        self._observed[name] = _Observed(group, raft, seen, disk)
        self._add("restart", name, **disk, commit=seen["commit"])
        for method in _INPUTS:
            setattr(raft, method, self._watched(name, raft, getattr(raft, method)))
        assert group.replica is not None, "only running members are observed"
        group.replica.send = self._watched_send(name, group.replica.send)

    def _watched(self, name: str, raft: Raft, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if self._lives.get(name) is not raft:
                return call(*arguments, **options)
            self._look(name)
            try:
                return call(*arguments, **options)
            finally:
                self._look(name)

        return watched

    def _watched_send(self, name: str, send: Callable[[Message], None]) -> Callable[[Message], None]:
        def watched(message: Message) -> None:
            self._look(name)
            match message:
                case VoteResponse(granted=True):
                    self._add("send", name, what="vote", term=message.term, candidate=message.target)
                case VoteRequest():
                    pair = (message.last_term, message.end)
                    self._add("send", name, what="ask", term=message.term, pair=pair)
                case _:
                    pass
            send(message)

        return watched

    # -- Differences --------------------------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        seen = self._observed[name]
        disk = _disk(seen.group)
        if disk != seen.disk:
            seen.disk = disk
            self._add("disk", name, **disk)
        self._look_at_core(name, seen)
        self._look_at_messages(name, seen)

    def _look_at_core(self, name: str, seen: _Observed) -> None:
        """Record the difference in the order in which a core makes it: its term and log, then records, then commits."""
        before, core = seen.core, _core(seen.raft.core)
        if core == before:
            return
        seen.core = core
        first = {**core, "commit": before["commit"]}
        new: Step = {}
        if core["end"] > before["end"]:
            new = _records(seen.raft.core, before["end"])
            first["end"] = before["end"]
            first["durable"] = min(core["durable"], before["end"])
        if first != before:
            self._add("core", name, **{key: value for key, value in first.items() if key != "commit"})
        if new:
            self._add("append", name, **new, end=core["end"])
        if core["commit"] > before["commit"]:
            self._add("commit", name, end=core["commit"])

    def _look_at_messages(self, name: str, seen: _Observed) -> None:
        """Record the promises that the core has handed out since the last look; they are sent without a wait."""
        messages = seen.raft.core.output.messages
        known = {id(message) for message in seen.handed}
        for message in messages:
            if id(message) not in known:
                self._promise(name, seen, message)
        seen.handed = list(messages)

    def _promise(self, name: str, seen: _Observed, message: Message) -> None:
        match message:
            case AppendResponse(end=end) | AnnouncementResponse(end=end) | HeartbeatResponse(end=end):
                if seen.acknowledged != (message.term, end):
                    seen.acknowledged = (message.term, end)
                    self._add("acknowledge", name, term=message.term, end=end)
            case DurableNotice(end=end):
                self._add("tell", name, term=message.term, end=end)
            case Announcement():
                self._add("send", name, what="announce", term=message.term, hist=message.history.starts)
            case _:
                pass

    def _add(self, kind: str, member: str, **fields: Any) -> None:
        if not self.is_full:
            self.steps.append({"kind": kind, "member": member, **fields})


def _core(core: Core) -> Step:
    role = "follower"
    if isinstance(core.state, Leading):
        role = "leader"
    elif isinstance(core.state, Campaign) and core.state.phase is CampaignPhase.VOTE:
        role = "candidate"
    return {
        "term": core.term,
        "vote": core.vote,
        "role": role,
        "hist": core.history.starts,
        "end": core.log.end,
        "durable": core.log.durable_end,
        "commit": core.log.commit_end,
        "announced": core.announced_number > 0,
        "installing": core.installing,
    }


def _disk(group: Group) -> Step:
    assert group.wal is not None, "only running members are observed"
    assert group.parts is not None, "only running members are observed"
    state = group.parts.log_store.durable_state
    assert state is not None, "the control file is written before a replica is made"
    return {"term": state.term, "vote": state.vote, "hist": state.history, "end": group.wal.durable_end}


def _records(core: Core, start: Index) -> Step:
    """Return the records from ``start`` on: a number for each, from its content and its term, and its membership."""
    values: list[int] = []
    memberships: list[tuple[frozenset[NodeId], ...]] = []
    for batch in core.log.since(start):
        values += [BatchIdentity.of(batch).checksum % _VALUE_MAX] * batch.count
        if batch.kind is Kind.MEMBERSHIP:
            membership = Membership.decode(batch.values()[0])
            memberships.append((frozenset(membership.voters), frozenset(membership.outgoing)))
        else:
            memberships += [()] * batch.count
    assert len(values) == len(memberships) == core.log.end - start, "records are observed before they leave memory"
    return {"values": values, "memberships": memberships}
