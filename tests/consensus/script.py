"""The commands of the scripts in ``tests/scripts/consensus``, which drive a group step by step.

Lines of output: ``<`` a received message, ``>`` a sent one, ``=`` state, ``!`` a fault or an error. Commands:

``cluster members=3 learners=0 disk=quick|slow sync_only=1 append_bytes=N nK=1,1,2/3``  (terms of the records on nK's
disk, and the stored term if it is higher) ``campaign N`` · ``lose N MEMBER`` (N gets a report that MEMBER seems to be
dead) ``tick N count=1`` · ``propose N VALUE...`` · ``read N`` · ``sync N count=1`` ``reads N`` · ``deliver [KIND]
from=N to=N count=N keep=1`` · ``drop [KIND] from=N to=N`` · ``pending`` ``stabilize [N...]`` · ``run TICKS [N...]``
(time stands still for the others) ``partition N...`` (from all others) · ``cut N N`` (one way) · ``links N-N ...`` (no
others) · ``heal`` ``crash N writes=0`` · ``restart N`` · ``damage N END unknown=1`` (the state after a recovery that
lost the log from END) ``snapshot N`` · ``trim N [INDEX]`` · ``fetch N`` · ``install N`` ``add N`` (an empty node) ·
``change N add|learn|remove|replace NODE [OLD]`` · ``transfer N [TARGET]`` ``status [N...]`` · ``members [N...]`` ·
``log [N...]`` · ``disk N``
"""

from __future__ import annotations

from dataclasses import fields, replace

from tests.consensus.group import OPTIONS, Group, Member, age
from tests.consensus.test_announcement import disk_of
from tests.datadriven import Command
from viewstamp.consensus.membership import AddMember, Change, RemoveMember
from viewstamp.consensus.messages import MESSAGES, Message
from viewstamp.consensus.ready import Ready
from viewstamp.errors import ViewstampError
from viewstamp.ids import Index, NodeId
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Script"]

_KINDS = {kind.__name__: kind for kind in MESSAGES}
_HIDDEN = {"source", "target"}


_ONLY_IF_TRUE = ("transfers", "is_recovering", "life", "leader_end")


def describe(message: Message) -> str:
    """Return a message as one line."""
    parts = []
    for each in fields(message):
        value = getattr(message, each.name)
        if each.name in _HIDDEN or (each.name in _ONLY_IF_TRUE and not value):
            continue
        if each.name == "batches":
            value = "[" + " ".join(describe_batch(batch) for batch in value) + "]"
        parts.append(f"{each.name}={str(value).replace(' ', '')}" if each.name == "history" else f"{each.name}={value}")
    return f"{message.source} {message.target} {type(message).__name__} {' '.join(parts)}"


def describe_batch(batch: Batch) -> str:
    """Return a batch as its kind, unless it holds records, and its viewstamps."""
    kind = "" if batch.kind is Kind.RECORDS else f"{batch.kind.name.lower()} "
    last = "" if batch.count == 1 else f"..{batch.last_index}"
    return f"{kind}{batch.term}.{batch.first_index}{last}"


class _Told(Group):
    """A group that reports its events."""

    lines: list[str]
    cut: frozenset[tuple[str, str]] = frozenset()
    """(source, target) of the links that are cut."""

    def step(self, me: str, *messages: Message) -> None:
        for message in messages:
            if (message.source, message.target) in self.cut or not self[me].is_up:
                self.lines.append(f"! {describe(message)}")
            else:
                self.lines.append(f"< {describe(message)}")
                super().step(me, message)

    def _send(self, member: Member, message: Message) -> None:
        super()._send(member, message)
        self.lines.append(f"> {describe(message)}")

    def _write_one(self, member: Member) -> None:
        before = len(member.disk.log)
        super()._write_one(member)
        self.lines.extend(f"= {member.me} disk: {line}" for line in member.disk.log[before:])

    def _act(self, member: Member, ready: Ready) -> None:
        super()._act(member, ready)
        self.lines.extend(f"= {member.me} reads below {index + 1} (token {token})" for token, index in ready.reads)

    def _apply(self, member: Member, batch: Batch) -> None:
        super()._apply(member, batch)
        self.lines.append(f"= {member.me} applies {describe_batch(batch)}")


class Script:
    """Runs commands on one group."""

    def __init__(self) -> None:
        self.group = _Told.__new__(_Told)

    def run(self, command: Command) -> list[str]:
        """Run one command; return its output."""
        handler = getattr(self, f"_{command.name}", None)
        if handler is None:
            raise SyntaxError(f"line {command.line}: no command {command.name!r}")
        self.group.lines = []
        try:
            handler(command)
        except ViewstampError as error:
            self.group.lines.append(f"! {type(error).__name__}: {error}")
        return self.group.lines

    def _cluster(self, command: Command) -> None:
        options = replace(
            OPTIONS,
            sync_only=bool(command.number("sync_only", 0)),
            append_bytes_max=command.number("append_bytes", OPTIONS.append_bytes_max),
        )
        disks = {
            NodeId(me): disk_of(*map(int, terms.partition("/")[0].split(",")), term=int(terms.partition("/")[2] or 0))
            for me, terms in command.options.items()
            if me[0] == "n" and me[1:].isdigit()
        }
        self.group.__init__(  # type: ignore[misc]
            command.number("members", 3),
            options=options,
            learners=[NodeId(f"l{number + 1}") for number in range(command.number("learners", 0))],
            disks=disks,
            is_quick_disk=command.options.get("disk", "quick") == "quick",
        )

    def _campaign(self, command: Command) -> None:
        """The election timeouts of the member, and of all others without a leader, expire."""
        for member in self.group.up():
            if member.core.leader is None:
                age(member.core, 10)
                member.core.election_ticks = 30
        self.group.campaign(command.word())

    def _tick(self, command: Command) -> None:
        self.group.tick(command.word(), command.number("count", 1))

    def _lose(self, command: Command) -> None:
        self.group.lose(command.word(), command.word(1))

    def _propose(self, command: Command) -> None:
        viewstamp = self.group.propose(command.word(), *(word.encode() for word in command.words[1:]))
        self.group.lines.insert(0, f"= {viewstamp}")

    def _read(self, command: Command) -> None:
        self.group.read(command.word())

    def _reads(self, command: Command) -> None:
        reads = self.group[command.word()].reads
        told = [f"token {token} below {index + 1}" for token, index in reads.items()]
        self.group.lines.append(f"= {command.word()} has read: {', '.join(told) or 'nothing'}")

    def _sync(self, command: Command) -> None:
        count = int(command.options["count"]) if "count" in command.options else None
        self.group.sync(command.word(), count)

    def _found(self, command: Command) -> dict[str, object]:
        kind = _KINDS[command.words[0]] if command.words else Message
        return {"kind": kind, "source": command.options.get("from"), "target": command.options.get("to")}

    def _deliver(self, command: Command) -> None:
        found = self._found(command)
        if "count" in command.options:
            for message in self.group.matching(**found)[: int(command.options["count"])]:  # type: ignore[arg-type]
                self.group._take(message)
                self.group.step(message.target, message)
            return
        self.group.deliver(**found, keep="keep" in command.options)  # type: ignore[arg-type]

    def _drop(self, command: Command) -> None:
        found = self.group.drop(**self._found(command))  # type: ignore[arg-type]
        self.group.lines.extend(f"! {describe(message)}" for message in found)

    def _pending(self, command: Command) -> None:
        self.group.lines.extend(f"{describe(message)}" for message in self.group.messages)

    def _stabilize(self, command: Command) -> None:
        self.group.settle(*command.words)

    def _run(self, command: Command) -> None:
        self.group.run(int(command.word()), *command.words[1:])

    def _partition(self, command: Command) -> None:
        apart = set(command.words)
        self.group.cut = self.group.cut | {(a, b) for a, b in self._pairs() if (a in apart) != (b in apart)}

    def _cut(self, command: Command) -> None:
        self.group.cut = self.group.cut | {(command.word(), command.word(1))}

    def _links(self, command: Command) -> None:
        linked = {frozenset(word.split("-")) for word in command.words}
        self.group.cut = frozenset((a, b) for a, b in self._pairs() if a != b and frozenset((a, b)) not in linked)

    def _heal(self, command: Command) -> None:
        self.group.cut = frozenset()

    def _pairs(self) -> list[tuple[str, str]]:
        return [(a, b) for a in self.group.members for b in self.group.members]

    def _crash(self, command: Command) -> None:
        self.group.crash(command.word(), durable_writes=command.number("writes", 0))

    def _restart(self, command: Command) -> None:
        self.group.restart(command.word())

    def _damage(self, command: Command) -> None:
        self.group[command.word()].disk.damage(int(command.word(1)), is_end_known="unknown" not in command.options)

    def _snapshot(self, command: Command) -> None:
        snapshot = self.group.snapshot(command.word())
        point = snapshot.point if snapshot is not None else None
        told = "nothing new" if point is None else f"up to {point.last_term}.{point.end - 1}"
        self.group.lines.append(f"= {command.word()} takes a snapshot: {told}")

    def _trim(self, command: Command) -> None:
        self.group.trim(command.word(), Index(int(command.words[1])) if len(command.words) > 1 else None)
        self.group.lines.append(f"= {command.word()} log begins at {self.group[command.word()].disk.begin}")

    def _fetch(self, command: Command) -> None:
        if not self.group.fetch_snapshot(command.word()):
            self.group.lines.append(f"= {command.word()} has nothing to fetch")

    def _install(self, command: Command) -> None:
        answer = {True: "installs it", False: "has no use for it", None: "has to wait"}[
            self.group.install(command.word())
        ]
        self.group.lines.insert(0, f"= {command.word()} {answer}")

    def _add(self, command: Command) -> None:
        self.group.add(command.word())

    def _change(self, command: Command) -> None:
        action, node = command.word(1), NodeId(command.word(2))
        replaces = NodeId(command.word(3)) if action == "replace" else None
        wanted: Change = AddMember(node, f"at-{node}", becomes_voter=action != "learn", replaces=replaces)
        if action == "remove":
            wanted = RemoveMember(node)
        viewstamp = self.group.change(command.word(), wanted)
        self.group.lines.insert(0, f"= {viewstamp}")

    def _transfer(self, command: Command) -> None:
        chosen = self.group.transfer(command.word(), command.words[1] if len(command.words) > 1 else None)
        self.group.lines.insert(0, f"= {command.word()} hands over to {chosen}")

    def _members(self, command: Command) -> None:
        for member in self._chosen(command):
            if member.is_up:
                membership = member.core.membership
                told = f"generation={membership.generation} voters={','.join(membership.voters)}"
                for name in ("learners", "outgoing"):
                    told += f" {name}={','.join(getattr(membership, name))}" if getattr(membership, name) else ""
                if membership.joining:
                    told += " joining=" + ",".join(
                        f"{node} for {old}" if old else node for node, old in membership.joining.items()
                    )
                self.group.lines.append(f"= {member.me} {told}")

    def _chosen(self, command: Command) -> list[Member]:
        return [member for me, member in self.group.members.items() if not command.words or me in command.words]

    def _status(self, command: Command) -> None:
        for member in self._chosen(command):
            if member.is_up:
                core = member.core
                pair = core.recovering_until
                self.group.lines.append(
                    f"= {member.me} {core.role.value} {core.lifecycle.value} term={core.term}"
                    f" leader={core.leader or '-'}"
                    f" history={str(core.history).replace(' ', '')}"
                    f" end={core.log.end} durable={core.log.durable_end} committed={core.log.commit_end}"
                    + (f" recovering_until={pair[0]}.{pair[1]}" if pair is not None else "")
                )
            else:
                self.group.lines.append(f"= {member.me} down")

    def _log(self, command: Command) -> None:
        for member in self._chosen(command):
            self.group.lines.append(f"= {member.me} log: {' '.join(member.disk.records()) or 'empty'}")

    def _disk(self, command: Command) -> None:
        disk = self.group[command.word()].disk
        self.group.lines.append(
            f"= {command.word()} disk: term={disk.term} vote={disk.vote or '-'}"
            f" history={str(disk.history).replace(' ', '')} log={','.join(disk.records()) or 'empty'}"
            + (f" begin={disk.begin}" if disk.begin > 1 else "")
        )
