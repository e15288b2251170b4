"""The commands of the scripts in ``tests/scripts/consensus``: a group, told step by step.

Lines of output: ``<`` a message comes in, ``>`` one goes out, ``=`` state, ``!`` a fault or an error. Commands:

``cluster members=3 learners=0 disk=quick|slow sync_only=1 append_bytes=N nK=1,1,2``  (terms of the records found)
``campaign N`` · ``tick N count=1`` · ``propose N VALUE...`` · ``read N`` · ``sync N count=1``
``deliver [KIND] from=N to=N keep=1`` · ``drop [KIND] from=N to=N`` · ``pending`` · ``stabilize [N...]`` · ``run TICKS``
``partition N...`` · ``heal`` · ``crash N writes=0`` · ``restart N`` · ``status [N...]`` · ``log [N...]`` · ``disk N``
"""

from __future__ import annotations

from dataclasses import fields, replace

from tests.consensus.group import OPTIONS, Group, Member
from tests.consensus.test_announcement import disk_of
from tests.datadriven import Command
from viewstamp.consensus.messages import MESSAGES, Message
from viewstamp.errors import ViewstampError
from viewstamp.ids import NodeId
from viewstamp.wire.batch import Batch, Kind

__all__ = ["Script"]

_KINDS = {kind.__name__: kind for kind in MESSAGES}
_HIDDEN = {"source", "target"}


_ONLY_IF_TRUE = ("transfers", "is_silent")


def describe(message: Message) -> str:
    """Return a message in one line."""
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
    """Return a batch as its kind, where it is no records, and its viewstamps."""
    kind = "" if batch.kind is Kind.RECORDS else f"{batch.kind.name.lower()} "
    last = "" if batch.count == 1 else f"..{batch.last_index}"
    return f"{kind}{batch.term}.{batch.first_index}{last}"


class _Told(Group):
    """A group that tells what happens in it."""

    lines: list[str]
    alone: frozenset[str] = frozenset()

    def step(self, me: str, *messages: Message) -> None:
        for message in messages:
            is_cut = (message.source in self.alone) != (message.target in self.alone)
            if is_cut or not self[me].is_up:
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

    def _apply(self, member: Member, batch: Batch) -> None:
        super()._apply(member, batch)
        self.lines.append(f"= {member.me} applies {describe_batch(batch)}")


class Script:
    """Runs commands on one group."""

    def __init__(self) -> None:
        self.group = _Told.__new__(_Told)

    def run(self, command: Command) -> list[str]:
        """Run one command; return what it tells."""
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
            NodeId(me): disk_of(*(int(term) for term in terms.split(",")))
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
        """The member's timeout runs out; so have the others' that hear no leader."""
        for member in self.group.up():
            if member.core.leader is None:
                member.core.ticks_since_leader = max(member.core.ticks_since_leader, 10)
                member.core.election_ticks = 30
        self.group.campaign(command.word())

    def _tick(self, command: Command) -> None:
        self.group.tick(command.word(), command.number("count", 1))

    def _propose(self, command: Command) -> None:
        viewstamp = self.group.propose(command.word(), *(word.encode() for word in command.words[1:]))
        self.group.lines.insert(0, f"= {viewstamp}")

    def _read(self, command: Command) -> None:
        self.group.read(command.word())

    def _sync(self, command: Command) -> None:
        count = int(command.options["count"]) if "count" in command.options else None
        self.group.sync(command.word(), count)

    def _found(self, command: Command) -> dict[str, object]:
        kind = _KINDS[command.words[0]] if command.words else Message
        return {"kind": kind, "source": command.options.get("from"), "target": command.options.get("to")}

    def _deliver(self, command: Command) -> None:
        self.group.deliver(**self._found(command), keep="keep" in command.options)  # type: ignore[arg-type]

    def _drop(self, command: Command) -> None:
        found = self.group.drop(**self._found(command))  # type: ignore[arg-type]
        self.group.lines.extend(f"! {describe(message)}" for message in found)

    def _pending(self, command: Command) -> None:
        self.group.lines.extend(f"{describe(message)}" for message in self.group.messages)

    def _stabilize(self, command: Command) -> None:
        self.group.settle(*command.words)

    def _run(self, command: Command) -> None:
        self.group.run(int(command.word()))

    def _partition(self, command: Command) -> None:
        self.group.alone = frozenset(command.words)

    def _heal(self, command: Command) -> None:
        self.group.alone = frozenset()

    def _crash(self, command: Command) -> None:
        self.group.crash(command.word(), durable_writes=command.number("writes", 0))

    def _restart(self, command: Command) -> None:
        self.group.restart(command.word())

    def _members(self, command: Command) -> list[Member]:
        return [member for me, member in self.group.members.items() if not command.words or me in command.words]

    def _status(self, command: Command) -> None:
        for member in self._members(command):
            if member.is_up:
                core = member.core
                self.group.lines.append(
                    f"= {member.me} {core.role.value} {core.lifecycle.value} term={core.term}"
                    f" leader={core.leader or '-'}"
                    f" history={str(core.history).replace(' ', '')}"
                    f" end={core.log.end} durable={core.log.durable_end} committed={core.log.commit_end}"
                )
            else:
                self.group.lines.append(f"= {member.me} down")

    def _log(self, command: Command) -> None:
        for member in self._members(command):
            self.group.lines.append(f"= {member.me} log: {' '.join(member.disk.records()) or 'empty'}")

    def _disk(self, command: Command) -> None:
        disk = self.group[command.word()].disk
        self.group.lines.append(
            f"= {command.word()} disk: term={disk.term} vote={disk.vote or '-'}"
            f" history={str(disk.history).replace(' ', '')} log={','.join(disk.records()) or 'empty'}"
        )
