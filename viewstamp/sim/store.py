"""The store of runs that the members of a world share, and its faults. It outlives every process.

It is a directory, which is the real ``DirectoryObjects`` on a simulated disk that all members share, or a bucket, where
a put appears at once and whole, and a removal before it does not hinder it. The rules of ``RunObjects`` are real, too;
only the bytes of a run differ (``run_format.py``).

| fault | effect, until it ends |
| --- | --- |
| away | every call raises UnavailableError |
| slow | every call takes effect at once, and its caller learns of it up to two seconds later |
| full | nothing can be created |
| read-only | nothing can be created or removed |
| flaky | calls raise UnavailableError, before or after their effect |
| late | in a bucket: a put raises UnavailableError, and its object appears up to some seconds later |
| cut | of a directory: a power cut of the machine that has it, in one of the next calls, takes any subset of the \
unsynced changes |
| die | the next process that calls the store dies within its next calls, before or after the effect of one |
| gone | the directory is empty, as a mount point whose mount is away, or the bucket, as another one of its name; then \
it has again what it had before, at the latest when a member has no run to ask for |
| truncate, flip, miss, replace, foreign | an object lost its end; has another bit; is not there; has the content of \
another run; is that of another cluster. When the fault ends, an intact copy is put in its place |

| invariant | sentence |
| --- | --- |
| DamageIsFound | no object that is damaged is verified |
| PreparedIsNotRead | a member reads a run only if it was committed |
| OnlyDroppedIsRemoved | a member removes an object only if its state has the run as dropped, or as unknown |
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from io import BytesIO
from typing import cast

from viewstamp.archive.key_rows import KeyFooter
from viewstamp.archive.run_file import RunFooter, run_folder, run_name
from viewstamp.archive.run_store import ReadableRun, RunObjects
from viewstamp.archive.store import DirectoryObjects, ObjectCreation, ObjectFile, ObjectStore
from viewstamp.errors import CorruptionError, StorageError, StorageFullError, UnavailableError, ViewstampError
from viewstamp.host.interfaces import Buffer
from viewstamp.ids import GROUP_0, ClusterId, GroupId, Position, RunId
from viewstamp.node.archive_queries import ArchivedRun, NewestRunsQuery, RunQuery
from viewstamp.node.archived import LoadedRecords
from viewstamp.node.keyed_queries import KeyRunQuery
from viewstamp.sim.cluster import Cluster, Member
from viewstamp.sim.disk import UNLIMITED_BYTES, SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash, current_process
from viewstamp.sim.run_format import SimpleKeys, SimpleRuns
from viewstamp.sim.swarm import STORE_FAULTS
from viewstamp.sim.violation import Violation
from viewstamp.sim.volume import Volume

__all__ = ["SimulatedStore", "StoreFaults", "object_name", "read_run"]

_ROOT = "/store"
_CLUSTER = ClusterId("simulated")
_SUFFIX = ".parquet"
_CALLS_UNTIL_MAX = 12
_LATE_SECONDS = 3.0
_SLOW_SECONDS = 2.0
_RESTART_SECONDS = 0.3


class SimulatedStore:
    """The objects, and the faults that hold at present.

    Invariants:
      * ``damaged`` has the intact bytes of each object that a fault has changed, and that no member has removed
    """

    def __init__(self, cluster: Cluster, *, is_bucket: bool) -> None:
        self.cluster = cluster
        self.is_bucket = is_bucket
        self.entropy = cluster.loop.entropy("store")
        self.troubles: dict[str, None] = {}
        """The faults of the whole store that hold."""
        self.damaged: dict[str, bytes] = {}
        self.healed_at = -1.0
        """The time at which a damage ended last."""
        self.changes: dict[str, int] = {}
        """The number of times that a fault has changed each object."""
        self.late = 0
        """The number of puts whose objects have yet to appear."""
        self.removed: set[str] = set()
        """The names that members have removed."""
        self.whole_reads: set[tuple[str, int, str]] = set()
        """(member, number of its start, name): who has read which object when it was whole, after the commit."""
        self.committed: set[str] = set()
        """The names of the objects of runs that a member had as committed once."""
        self.counts: dict[str, int] = {}
        self._volume = Volume()
        self._mounted = self._volume
        """What the members see: the directory, or an empty one while it is gone."""
        self._bucket: dict[str, bytes] = {}
        self.seen_bucket = self._bucket
        """What the members see: the bucket, or an empty one while it is gone."""
        self._disks: dict[str, SimulatedDisk] = {}
        self._calls_until: dict[str, int] = {}
        """For a death and for a power cut: in which of the next calls it happens."""

    def runs_of(self, member: Member) -> RunObjects:
        """Return the store as the process of a member uses it that begins now."""
        if self.is_bucket:
            return _Runs(self, member, _Objects(self, member, _Bucket(self)))
        disk = self._disks[member.name] = SimulatedDisk(f"{member.name}-store", loop=self.cluster.loop)
        disk.volume = self._mounted
        self._limit()
        return _Runs(self, member, _Objects(self, member, DirectoryObjects(disk, _ROOT)))

    # What it holds, for the world.

    @property
    def objects(self) -> dict[str, bytes]:
        """All complete objects by their names, with the bytes that a reader sees."""
        if self.is_bucket:
            return dict(self._bucket)
        return {
            f"{folder}/{name}": bytes(inode.data)
            for folder in sorted(self._volume.list_directory(_ROOT))
            for name, inode in self._volume.names(f"{_ROOT}/{folder}").items()
            if name.endswith(_SUFFIX)
        }

    @property
    def names(self) -> list[str]:
        """All names, also of what is not complete."""
        if self.is_bucket:
            return sorted(self._bucket)
        folders = sorted(self._volume.list_directory(_ROOT))
        return [f"{folder}/{name}" for folder in folders for name in sorted(self._volume.names(f"{_ROOT}/{folder}"))]

    def names_of(self, group: GroupId) -> set[str]:
        """Return the names of a group's runs among :attr:`names`."""
        return {name for name in self.names if name.startswith(run_folder(_CLUSTER, group))}

    def intact(self, name: str) -> bytes | None:
        """Return the bytes of an object without the damage that a fault has done; None = there is none."""
        return self.damaged.get(name) or self.objects.get(name)

    def is_durable(self, name: str) -> bool:
        """Return whether a power cut now would leave the object as it is."""
        if self.is_bucket or name in self.damaged:
            return True
        folder, _, file = name.partition("/")
        found = self._volume.certain_names(f"{_ROOT}/{folder}").get(file)
        return found is not None and found.is_synced

    def check_committed(self, run: ArchivedRun) -> None:
        """Check the object of a run that a member has as committed, unless it was dropped and removed already.

        Raises Violation.
        """
        name = object_name(run)
        self.committed.add(name)
        data = self.intact(name)
        if data is None and name in self.removed:
            return
        if not data or not self.is_durable(name):
            raise Violation("CommittedIsWhole", f"{name} is that of a committed run, and it is not durable")
        try:
            found = read_run(data, name)
            list(found.verify())
        except CorruptionError as error:
            raise Violation("CommittedIsWhole", f"{name} is that of a committed run: {error.message}") from error
        footer = found.footer
        held = footer.group, footer.run, footer.topic, footer.first, footer.end, footer.digest
        if held != (run.group, run.id, run.topic, run.first, run.end, run.digest.hex()):
            raise Violation("CommittedIsWhole", f"{name} is that of the committed run {run}, and it holds {held}")

    # Faults.

    def do(self, kind: str) -> Callable[[], None]:
        """Begin a fault; return what ends it."""
        if kind == "gone" and not any(map(_has_runs, self.cluster.members)):
            return lambda: None
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.cluster.note("store", "!", f"fault {kind}")
        if kind in ("cut", "die"):
            self._calls_until[kind] = self.entropy.randint(1, _CALLS_UNTIL_MAX)
        elif kind in STORE_FAULTS[8:]:
            return self._damage(kind)
        else:
            self.troubles[kind] = None
            if kind == "gone":
                self._mount(Volume(), {})
            self._limit()
            return lambda: self._end(kind)
        return lambda: None

    def calm(self) -> None:
        """End all faults."""
        self._calls_until.clear()
        for kind in list(self.troubles):
            self._end(kind)
        for name in list(self.damaged):
            self._heal(name)

    def _end(self, kind: str) -> None:
        self.troubles.pop(kind, None)
        if kind == "gone":
            self.healed_at = self.cluster.loop.time()
            self._mount(self._volume, self._bucket)
        self._limit()

    def was_damaged(self, began: float) -> bool:
        """Return whether an object was damaged by a fault, or gone with the others, at a moment since ``began``."""
        return bool(self.damaged) or "gone" in self.troubles or self.healed_at >= began

    def be_new(self, member: Member) -> None:
        """End the fault ``gone`` if a member has no run to ask for, because it takes an empty store for a new one then.

        That is a limit of the product: note 0022.
        """
        if "gone" in self.troubles and not _has_runs(member):
            self._end("gone")

    def _mount(self, volume: Volume, bucket: dict[str, bytes]) -> None:
        """Let the members see a volume, or a bucket; files that they have open are not there any more."""
        self._mounted, self.seen_bucket = volume, bucket
        if not volume.exists(_ROOT):
            volume.make_directory(_ROOT)
        for disk in self._disks.values():
            disk.volume = volume

    def _limit(self) -> None:
        for disk in self._disks.values():
            is_full = "full" in self.troubles
            disk.capacity_bytes = self._volume.bytes_used() if is_full else UNLIMITED_BYTES

    def _cut_power(self) -> None:
        """Cut the power of the machine that has the directory; open files of the members are then no longer there."""
        self._volume = Volume.from_image(self._volume.after_cut(self.entropy))
        if "gone" not in self.troubles:
            self._mount(self._volume, self._bucket)

    def _damage(self, kind: str) -> Callable[[], None]:
        names = [name for name, data in self.objects.items() if data and name not in self.damaged]
        if not names:
            return lambda: None
        name = self.entropy.choice(names)
        data = self.objects[name]
        spoiled = self._spoil(kind, name, data)
        if spoiled == data:
            return lambda: None
        self.damaged[name] = data
        self.changes[name] = self.changes.get(name, 0) + 1
        self._put(name, spoiled)
        self.cluster.note("store", "!", f"{kind} {name}")
        return lambda: self._heal(name)

    def _spoil(self, kind: str, name: str, data: bytes) -> bytes | None:
        """Return what a damage makes of an object; None = it is gone."""
        if kind == "miss":
            return None
        if kind == "truncate":
            return data[: self.entropy.randrange(1, len(data))]
        if kind == "foreign":
            return _of_another_cluster(data)
        others = [each for other, each in self.objects.items() if other != name and each]
        if kind == "replace" and others:
            return self.entropy.choice(others)
        at = self.entropy.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self.entropy.randrange(8)]) + data[at + 1 :]

    def _heal(self, name: str) -> None:
        data = self.damaged.pop(name, None)
        if data is not None:
            self.changes[name] += 1
            self.healed_at = self.cluster.loop.time()
            self._put(name, data)

    def _put(self, name: str, data: bytes | None) -> None:
        """Let an object be these bytes, durably; None = it is gone."""
        if self.is_bucket:
            self._bucket.pop(name, None)
            if data is not None:
                self._bucket[name] = data
            return
        path = f"{_ROOT}/{name}"
        if self._volume.exists(path):
            self._volume.lose(path)
        if data is not None:
            self._volume.adopt(path, data)

    # For the members' calls.

    def enter(self, member: Member, *, writes: bool = False, creates: bool = False) -> None:
        """Begin a call of a member. Raises what its trouble raises."""
        self._step(member)
        if "slow" in self.troubles:
            self.cluster.loop.block(self.entropy.uniform(0.05, _SLOW_SECONDS))
        if "away" in self.troubles or ("flaky" in self.troubles and self.entropy.random() < 0.2):
            raise UnavailableError("the simulated store does not answer", remedy="try again")
        if "read-only" in self.troubles and writes:
            raise StorageError("the simulated store is read-only")
        if "full" in self.troubles and creates:
            raise StorageFullError("the simulated store is full")

    def leave(self, member: Member) -> None:
        """End a call that had its effect."""
        self._step(member)
        if "flaky" in self.troubles and self.entropy.random() < 0.2:
            raise UnavailableError("the simulated store has not answered", remedy="try again")

    def _step(self, member: Member) -> None:
        process = current_process()
        if process is not None and process.is_dead:
            raise SimulatedCrash("the process that calls the store is dead")
        if self._is_due("cut") and not self.is_bucket:
            self._cut_power()
        if self._is_due("die") and process is not None and process is member.process:
            self.cluster.note(member.name, "!", "dies in a call of the store")
            process.kill()
            self.cluster.loop.call_soon(self._bury, member, context=contextvars.Context())
            raise SimulatedCrash(f"{member.name} dies in a call of the store")

    def _is_due(self, kind: str) -> bool:
        left = self._calls_until.pop(kind, 0)
        if left > 1:
            self._calls_until[kind] = left - 1
        return left == 1

    def _bury(self, member: Member) -> None:
        if not member.is_up:
            self.cluster.take_down(member, power=False)
            self.cluster.loop.call_later(_RESTART_SECONDS, self.cluster.bring_up, member)

    def put_late(self, name: str, data: bytes) -> bool:
        """Let an object appear later, if that fault holds; return whether it will."""
        if "late" not in self.troubles or self.entropy.random() < 0.5:
            return False
        self.late += 1

        def appear() -> None:
            self.late -= 1
            self._bucket.setdefault(name, data)

        loop = self.cluster.loop
        loop.call_later(self.entropy.uniform(0, _LATE_SECONDS), appear, context=contextvars.Context())
        return True

    def note_removed(self, name: str) -> None:
        """Note that a member has removed an object."""
        self.damaged.pop(name, None)
        self.removed.add(name)


def _has_runs(member: Member) -> bool:
    """Return whether a member has a committed run with kept records, of any group that is open there."""
    groups = member.node.groups.values() if member.is_up and member.node is not None else ()
    return any(group.parts is not None and group.machine.query(NewestRunsQuery(1)) for group in groups)


def _of_another_cluster(data: bytes) -> bytes:
    """Return the object of the same records of another cluster."""
    size = int.from_bytes(data[-4:], "little")
    at = len(data) - 4 - size
    footer = KeyFooter if b'"kind": "keys"' in data[at:-4] else RunFooter
    packed = replace(footer.unpack(data[at:-4], ""), cluster=ClusterId("another")).pack()
    return data[:at] + packed + len(packed).to_bytes(4, "little")


def read_run(data: bytes, name: str) -> ReadableRun:
    """Open the bytes of an object. Raises CorruptionError."""
    return SimpleRuns().open(cast("ObjectFile", BytesIO(data)), name)


class _Objects:
    """The store as the process of a member calls it; it has the calls of :class:`ObjectStore`."""

    def __init__(self, store: SimulatedStore, member: Member, inner: ObjectStore) -> None:
        self.where = inner.where
        self._store = store
        self._member = member
        self._inner = inner

    def check_usable(self) -> None:
        self._store.enter(self._member)

    def status(self) -> dict[str, object]:
        return self._inner.status()

    def prepare(self, folder: str) -> None:
        self._store.be_new(self._member)
        self._inner.prepare(folder)

    def begin(self, name: str) -> ObjectCreation:
        self._store.enter(self._member, writes=True, creates=True)
        creation = self._inner.begin(name)
        self._store.leave(self._member)
        return _Creation(self._store, self._member, creation, name)

    def create(self, name: str, pieces: Iterable[Buffer]) -> None:
        creation = self.begin(name)
        for piece in pieces:
            creation.write(piece)
        creation.finish()

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        self._store.enter(self._member)
        return self._inner.read_part(name, offset, size)

    def list_sizes(self, folder: str) -> dict[str, int]:
        self._store.enter(self._member)
        return self._inner.list_sizes(folder)

    def remove(self, name: str) -> None:
        self._store.enter(self._member, writes=True)
        self._inner.remove(name)
        self._store.note_removed(name)
        self._store.leave(self._member)


class _Creation:
    """An object that a member creates; it has the calls of :class:`ObjectCreation`."""

    def __init__(self, store: SimulatedStore, member: Member, inner: ObjectCreation, name: str) -> None:
        self._store = store
        self._member = member
        self._inner = inner
        self._name = name

    def write(self, piece: Buffer) -> None:
        self._store.enter(self._member, writes=True, creates=True)
        self._inner.write(piece)
        self._store.leave(self._member)

    def finish(self) -> None:
        self._store.enter(self._member, writes=True, creates=True)
        self._inner.finish()
        self._store.leave(self._member)

    def abandon(self) -> None:
        try:
            self._store.enter(self._member, writes=True)
        except ViewstampError:
            return
        self._inner.abandon()


class _Bucket:
    """The calls of a bucket: a put creates a whole object if its name is not in use."""

    where = "the simulated bucket"

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    @property
    def _objects(self) -> dict[str, bytes]:
        return self._store.seen_bucket

    def check_usable(self) -> None:
        pass

    def status(self) -> dict[str, object]:
        return {"where": self.where, "trouble": "", "remedy": "", "is_current": True}

    def prepare(self, folder: str) -> None:
        pass

    def begin(self, name: str) -> ObjectCreation:
        if name in self._objects:
            raise FileExistsError(name)
        return _Put(self._store, name)

    def create(self, name: str, pieces: Iterable[Buffer]) -> None:
        raise NotImplementedError

    def read_part(self, name: str, offset: int, size: int) -> bytes:
        if name not in self._objects:
            raise FileNotFoundError(name)
        return self._objects[name][offset : offset + size]

    def list_sizes(self, folder: str) -> dict[str, int]:
        return {name: len(data) for name, data in sorted(self._objects.items()) if name.startswith(folder)}

    def remove(self, name: str) -> None:
        self._objects.pop(name, None)


class _Put:
    def __init__(self, store: SimulatedStore, name: str) -> None:
        self._store = store
        self._name = name
        self._data = bytearray()

    def write(self, piece: Buffer) -> None:
        self._data += piece

    def finish(self) -> None:
        if self._store.put_late(self._name, bytes(self._data)):
            raise UnavailableError("the simulated bucket has not answered a put", remedy="try again")
        if self._name in self._store.seen_bucket:
            raise FileExistsError(self._name)
        self._store.seen_bucket[self._name] = bytes(self._data)

    def abandon(self) -> None:
        pass


class _Runs(RunObjects):
    """The runs of a group as a process uses them: the real rules, and what the store has seen of its calls."""

    def __init__(self, store: SimulatedStore, member: Member, objects: ObjectStore, group: GroupId = GROUP_0) -> None:
        super().__init__(objects, _CLUSTER, SimpleRuns(), SimpleKeys(), group)
        self._seen = store
        self._member = member
        self._start = member.starts
        self._objects = objects

    def of_group(self, group: GroupId) -> RunObjects:
        return _Runs(self._seen, self._member, self._objects, group)

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        name = object_name(run)
        before = self._seen.changes.get(name, 0)
        yield from super().check(run)
        if name in self._seen.damaged and self._seen.changes.get(name, 0) == before:
            self._fail("DamageIsFound", f"verifies {name}, which is damaged")
        # If it was damaged meanwhile, each part was intact when it was read, because the digest is that of the run.
        if run.state == "committed":  # The leader's look at what it wrote was before.
            self._seen.whole_reads.add((self._member.name, self._start, name))

    def load(self, run: ArchivedRun, position: Position) -> LoadedRecords:
        name, hosted = object_name(run), self._member.group(run.group)
        if hosted is not None:  # Otherwise the group has just ended on this member.
            found = hosted.machine.query(RunQuery(run.id))
            if found is not None and found.state == "committed":
                self._seen.committed.add(name)
            if name not in self._seen.committed:
                self._fail("PreparedIsNotRead", f"reads {name}, whose run was never committed")
        return super().load(run, position)

    def remove(self, run: RunId) -> None:
        hosted = self._member.group(self._group)
        if hosted is not None:
            machine, replica = hosted.machine, hosted.replica
            found = machine.query(RunQuery(run))
            if found is None and self._group == GROUP_0:
                found = machine.query(KeyRunQuery(run))
            is_orphan = found is None and replica is not None and run < replica.applier.applied_end
            if not is_orphan and (found is None or found.state != "dropped"):
                state = "yet to be prepared" if found is None else found.state
                name = run_name(_CLUSTER, run, self._group)
                self._fail("OnlyDroppedIsRemoved", f"removes {name}, whose run is {state}")
        super().remove(run)

    def _fail(self, invariant: str, text: str) -> None:
        self._seen.cluster.fail(Violation(invariant, f"{self._member.name} {text}"))


def object_name(run: ArchivedRun) -> str:
    """Return the name of the object of a run."""
    return run_name(_CLUSTER, run.id, run.group)


class StoreFaults:
    """Injects faults of a store until it is stopped, from a generator of its own."""

    def __init__(self, store: SimulatedStore, kinds: Iterable[str], *, pause: float, lasting: float) -> None:
        """Prepare. ``pause`` is the mean time between two faults, ``lasting`` that of a fault, in seconds."""
        self._store = store
        self._kinds = list(kinds)
        self._pause = pause
        self._lasting = lasting
        self._entropy: random.Random = store.cluster.loop.entropy("store-faults")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        if self._kinds:
            self._task = self._store.cluster.loop.create_task(self._run())

    def stop(self) -> None:
        """Inject no more faults; those that hold end by themselves, or by ``SimulatedStore.calm``."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = self._store.cluster.loop
        while True:
            await asyncio.sleep(self._entropy.expovariate(1 / self._pause))
            end = self._store.do(self._entropy.choice(self._kinds))
            loop.call_later(self._entropy.expovariate(1 / self._lasting), end)
