"""Members' files for tests: logs made batch by batch, written by the real log, on one simulated disk."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import msgpack
from crc32c import crc32c

from viewstamp.consensus.membership import Membership
from viewstamp.errors import RequestError
from viewstamp.ids import GroupId, Index, NodeId, Position, Term, TopicId
from viewstamp.node.snapshots.file import SnapshotMeta
from viewstamp.node.snapshots.store import SnapshotStore
from viewstamp.replay import Digest, ExtentReader, OfflineReplay
from viewstamp.sim import loop as sim_loop
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.streams.cut import StateCut
from viewstamp.streams.ledger import Ledger
from viewstamp.streams.state import State
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.staged import pack_entry

NAMES = ("n1", "n2", "n3")
MEMBERSHIP = Membership({NodeId(name): f"127.0.0.1:{7000 + at}" for at, name in enumerate(NAMES)})
SMALL = WalOptions(segment_bytes=4096, reserve_bytes=0)
Shown = tuple[str, int, bytes]
"""A record in the form in which tests compare it: topic, position, value."""


class Log:
    """The batches of one log, in order; ``copy`` branches from it. Terms are set by hand: ``log.term = 3``."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.term = 1
        self.seconds = 1000
        self._positions: dict[int, int] = {}

    def copy(self) -> Log:
        return copy.deepcopy(self)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 1

    @property
    def history(self) -> tuple[tuple[int, int], ...]:
        starts = [(0, 1)]
        for batch in self.batches:
            if batch.term != starts[-1][0]:
                starts.append((batch.term, batch.first_index))
        return tuple(starts)

    def add(self, batch: Batch, position: int = 0) -> Batch:
        batch.stamp(
            term=Term(self.term),
            first_index=Index(self.end),
            previous_term=self.batches[-1].term if self.batches else Term(0),
            log_time=self.seconds * 1_000_000 + self.end,
            first_position=Position(position),
        )
        self.batches.append(batch)
        return batch

    def membership(self, membership: Membership = MEMBERSHIP) -> Batch:
        return self.add(build_batch([membership.encode()], kind=Kind.MEMBERSHIP))

    def topic(self, name: str = "orders", **settings: object) -> int:
        self.command(Kind.CREATE_TOPIC, name=name, **settings)
        self._positions[len(self._positions) + 1] = 1
        return len(self._positions)

    def records(self, *values: bytes, topic: int = 1, size: int = 0) -> Batch:
        padded = [value + b"." * (size - len(value)) for value in values]
        first = self._positions[topic]
        self._positions[topic] = first + len(values)
        return self.add(build_batch(padded, topic=TopicId(topic)), first)

    def command(self, kind: Kind, **fields: object) -> Batch:
        return self.add(build_batch([msgpack.packb(fields)], kind=kind))

    def begin(self, batch: int = 0, *, sink: str = "s", name: str = "a") -> int:
        """Begin an attempt; return its id."""
        fields: dict[str, object] = {"owner": "q", "run": "r", "reset": False, "keep_seconds": 3600, "keep_bytes": 0}
        begun = self.command(Kind.BEGIN_ATTEMPT, sink=sink, batch=batch, name=name, **fields)
        return begun.first_index

    def stage(self, attempt: int, *values: bytes, topic: int = 1) -> Batch:
        return self.add(build_batch(list(values), kind=Kind.STAGED, topic=TopicId(topic), attempt=attempt))

    def seal(self, attempt: int, *batches: Batch) -> bytes:
        packed = b"".join(pack_entry(b.first_index, b.topic, b.count, b.size) for b in batches)
        self.command(Kind.SEAL_ATTEMPT, attempt=attempt, batches=len(batches), checksum=crc32c(packed))
        return packed

    def commit(self, *parts: tuple[int, bytes], batch: int = 0, sink: str = "s") -> Batch:
        """Commit; the positions of the named batches are counted only with ``placed``."""
        return self.command(Kind.COMMIT, sink=sink, owner="q", run="r", batch=batch, parts=parts)

    def placed(self, count: int, topic: int = 1) -> None:
        """Note that ``count`` records got positions in ``topic``."""
        self._positions[topic] += count

    def state(self) -> State:
        """The state of a member after applying all of it."""
        ledger = Ledger(State())
        for batch in self.batches:
            with suppress(RequestError):
                ledger.apply(batch)
        return ledger.state


def orders(batches: int = 6, *, size: int = 0) -> Log:
    """A log with the members, a topic, and a few records in it, two a batch."""
    log = Log()
    log.membership()
    log.topic()
    for number in range(1, batches + 1):
        log.records(b"%da" % number, b"%db" % number, size=size)
    return log


def write_member(
    disk: SimulatedDisk,
    name: str,
    log: Log,
    *,
    first: int = 0,
    hint: int = 0,
    history: Sequence[tuple[int, int]] | None = None,
    group: int = 2,
    options: WalOptions = SMALL,
    node: str | None = None,
) -> Wal:
    """Write a member's control file and log as a killed process would leave them; ``first`` batches are not kept.

    ``group`` batches are one write; ``hint`` is the known commit end in the control file and at the end of the log.
    """
    membership = MEMBERSHIP.encode() if first else b""
    write_control(
        disk, name, history if history is not None else log.history, node=node, hint=hint, membership=membership
    )
    disk.make_directory(f"/{name}/wal")
    kept = log.batches[first:]
    wal = Wal.open(disk, f"/{name}/wal", options, on_batch=lambda batch, hint: None)
    if first:
        wal.reset_now(kept[0].first_index if kept else Index(log.end), log.batches[first - 1].term)
    for start in range(0, len(kept), group):
        if hint:
            wal.commit_hint = Index(min(hint, kept[start].first_index))
        wal.append_now(kept[start : start + group])
    wal.abandon()
    return wal


def write_control(
    disk: SimulatedDisk,
    name: str,
    history: Sequence[tuple[int, int]],
    *,
    node: str | None = None,
    hint: int = 0,
    cluster_id: str = "c",
    membership: bytes = b"",
) -> None:
    disk.make_directory(f"/{name}")
    state = ControlState(
        cluster_id=cluster_id,
        node_id=node or name,
        incarnation=f"i{name}",
        history=tuple(history),
        membership=membership,
        commit_hint=hint,
    )
    ControlFile.open(disk, f"/{name}").write(state)


def change_control(disk: SimulatedDisk, name: str, **fields: object) -> None:
    """Change fields of a member's control file."""
    control = ControlFile.open(disk, f"/{name}")
    assert control.state is not None
    control.write(replace(control.state, **fields))  # type: ignore[arg-type]


def write_snapshot(
    disk: SimulatedDisk, name: str, log: Log, *, history: Sequence[tuple[int, int]] | None = None, group: int = 0
) -> str:
    """Write a snapshot of all of ``log``; return its path."""
    state = log.state()

    async def work() -> str:
        store = SnapshotStore.open(disk, f"/{name}/snapshots", "c", GroupId(group))
        meta = SnapshotMeta(
            cluster="c",
            group=group,
            end=Index(log.end),
            term=log.batches[-1].term,
            history=tuple(history) if history is not None else log.history,
            membership=MEMBERSHIP.encode(),
            membership_index=1,
            membership_term=1,
            log_time=log.batches[-1].log_time,
            created_us=0,
        )
        new = await store.create(meta)
        cut = StateCut(state)
        while (piece := cut.next_piece(500)) is not None:
            await new.add(piece)
        await new.add(msgpack.packb(["end", None]))
        return (await new.finish()).path

    path = sim_loop.run(work())
    assert isinstance(path, str)
    return path


def cluster(log: Log, **arguments: object) -> SimulatedDisk:
    """Three members with the same log."""
    disk = SimulatedDisk()
    for name in NAMES:
        write_member(disk, name, log, **arguments)  # type: ignore[arg-type]
    return disk


def opened(disk: SimulatedDisk, *names: str, unsafe: bool = False) -> OfflineReplay:
    return OfflineReplay.open(disk, [f"/{name}" for name in (names or NAMES)], unsafe=unsafe)


def shown(disk: SimulatedDisk, replay: OfflineReplay) -> list[Shown]:
    """All records, in order; the replay must have no problem."""
    if replay.problem is not None:
        raise replay.problem
    found: list[Shown] = []
    digest = Digest()
    with ExtentReader(disk) as reader:
        for run, columns in replay.runs(reader, digest):
            offsets = memoryview(columns.values.offsets).cast("B")
            ends = [int.from_bytes(offsets[at : at + 4], "little") for at in range(0, 4 * columns.count + 4, 4)]
            values = [bytes(columns.values.data[a:b]) for a, b in pairwise(ends)]
            found += [(run.topic, run.position + at, value) for at, value in enumerate(values)]
    return found


def replayed(disk: SimulatedDisk, *names: str, unsafe: bool = False) -> list[Shown]:
    return shown(disk, opened(disk, *names, unsafe=unsafe))


def visible(log: Log) -> list[Shown]:
    """The records that readers see of a log without sinks: all, if none was trimmed."""
    topics = {int(id_): topic.name for id_, topic in log.state().topics.items()}
    return [
        (topics[batch.topic], record.position, record.value)
        for batch in log.batches
        if batch.kind is Kind.RECORDS
        for record in batch.records()
    ]


def segments(disk: SimulatedDisk, name: str) -> list[str]:
    """The paths of a member's segments."""
    return [f"/{name}/wal/{each}" for each in disk.list_directory(f"/{name}/wal") if each.endswith(".segment")]


def flip(disk: SimulatedDisk, path: str, location: int, bit: int = 0) -> None:
    disk.volume.find(path).data[location] ^= 1 << bit


def places_of(disk: SimulatedDisk, name: str, wanted: Callable[[Batch], bool]) -> Iterator[tuple[str, int]]:
    """The places of the wanted batches: the file and the byte."""
    for path in segments(disk, name):
        data = bytes(disk.volume.find(path).data)
        at = data.find(b"VSB\x01")
        while at >= 0:
            batch = Batch.decode_header(data[at:])
            if wanted(batch):
                yield path, at
            at = data.find(b"VSB\x01", at + 1)
