"""The control file: a node's state beside its log, in two checksummed copies.

A copy, little-endian, in the files ``control-a`` and ``control-b``::

     0  magic "VSC" + format version (1)             4 bytes
     4  checksum, crc32c of bytes 0..4 and 8..end    u32
     8  version, rising by one with each write       u64
    16  body length                                  u32
    20  reserved                                     4 bytes, 0
    24  body: msgpack map, then zeros to a multiple of 4,096 bytes

Every write goes to one copy, is synced, then goes to the other, and is synced; only then is it done. So while one copy
is incomplete the other holds at least the newest acknowledged version, and **one intact copy is always enough**.
(Copies that took turns would be half the work, but could not distinguish a torn write of the next version from damage
in an acknowledged one: a forgotten vote. Control writes are rare, for example at elections.) A copy is created under a
temporary name, synced and renamed, so the first write is no exception.

| one copy | the other | answer |
| --- | --- | --- |
| missing | missing | empty: never written |
| intact | intact, the same version | it |
| intact | intact, one version less | the newer: it may be acknowledged already |
| intact | unreadable or missing | the intact one: the other was being written, or is damaged, or was removed |
| intact | intact, further away | CorruptionError: one was copied from elsewhere |
| unreadable | unreadable or missing | CorruptionError |

The bytes that opening reads may be only in the page cache, and in one copy only; after a failed sync the system even
considers them written, so that another sync would not write them. So opening *writes* both copies again and syncs them
before the node can promise anything that depends on them. :func:`read_control_state` only reads.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from viewstamp.errors import ConfigError, CorruptionError, StorageError
from viewstamp.host.garbage import create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.value_class import value_class
from viewstamp.wal.format import NO_LOG_ID
from viewstamp.wire.checksum import crc32c

__all__ = ["CONTROL_NAMES", "ControlFile", "ControlState", "decode_copy", "is_control_lost", "read_control_state"]

FORMAT_VERSION = 1
CONTROL_NAMES = ("control-a", "control-b")
_MAGIC = b"VSC"
_HEADER = struct.Struct("<4sI QI4x")
_PAGE = 4096


@value_class
class ControlState:
    """The content of the control file.

    Attributes:
      term, vote: ("" = none); one durable write.
      history: the stored term history, (term, first index) pairs; it may run ahead of the log.
      membership: the one at the trimmed prefix, b"" = none.
      commit_hint: an end below which all was committed, at most the durable end when it was written. A log that ends
        below it has lost records.
      peers: (node, incarnation) of the peers met so far: one that comes back with another incarnation has lost its
        disk.
      recovering_until: the pair (last term, end) that the node had advertised, at least, when damage was found. Until
        its log reaches it, the node's votes and acknowledgements do not count (protocol rule 17); None = nothing is
        missing.
      member_id: the node's id in its group: its name, or another one since its disk was lost (rule 18); "" = its name.
      installing: the pair (last term, end) of the newest snapshot of a leader that is being fetched or installed;
        stored before the file gets its name, cleared with the history of the snapshot (``wal/verdict.py``); None =
        none.
      running: (boot id, durability) while the node may hold acknowledged records that are not synced, and None after a
        clean stop. Found under another boot id, it means that the machine lost power, and such records may be lost
        (docs/design/0007).
      lost_power: ``recovering_until`` was stored for that reason, and not for damage: all synced records are there.
      log_id: 16 bytes, which the headers of the log's segments have too; zeros = an older version created the log.
      promise_us: the longest promise that a process of this node may have given to a leader, in microseconds: the next
        process keeps it from its start (docs/design/0018). Written only if it is not 0, because older versions refuse
        the field.
      moved, moved_generation: (member, address) pairs that replace the addresses in memberships up to that generation,
        set while no majority could commit them.
      group: the group of this directory; written only if it is not 0, so that older versions refuse the directory.
    """

    cluster_id: str
    node_id: str
    incarnation: str
    term: int = 0
    vote: str = ""
    history: tuple[tuple[int, int], ...] = ((0, 1),)
    membership: bytes = b""
    commit_hint: int = 0
    peers: tuple[tuple[str, str], ...] = ()
    recovering_until: tuple[int, int] | None = None
    member_id: str = ""
    installing: tuple[int, int] | None = None
    running: tuple[str, str] | None = None
    lost_power: bool = False
    log_id: bytes = NO_LOG_ID
    promise_us: int = 0
    moved: tuple[tuple[str, str], ...] = ()
    moved_generation: int = 0
    group: int = 0

    def encode(self) -> bytes:
        """Return the body of a copy."""
        packed: bytes = msgpack.packb(
            {
                "cluster_id": self.cluster_id,
                "node_id": self.node_id,
                "incarnation": self.incarnation,
                "term": self.term,
                "vote": self.vote,
                "history": self.history,
                "membership": self.membership,
                "commit_hint": self.commit_hint,
                "peers": self.peers,
                "silent_until": self.recovering_until,
                "member_id": self.member_id,
                "installing": self.installing,
                "running": self.running,
                "lost_power": self.lost_power,
                "log_id": self.log_id,
                **({"promise_us": self.promise_us} if self.promise_us else {}),
                **({"moved": self.moved, "moved_generation": self.moved_generation} if self.moved else {}),
                **({"group": self.group} if self.group else {}),
            }
        )
        return packed

    @classmethod
    def decode(cls, body: bytes) -> ControlState:
        """Read the body of an intact copy.

        Raises:
          ConfigError: it holds a field that this version does not know, and would lose when it writes the file again.
          ValueError: the body is not a valid state.
        """
        fields = msgpack.unpackb(body)
        if type(fields) is not dict:
            raise ValueError("the body is no map")
        if unknown := sorted(fields.keys() - _FIELDS.keys(), key=repr):
            raise ConfigError(
                f"a control file holds {', '.join(map(str, unknown))}, which this version of viewstamp does not know",
                remedy="run the version of viewstamp that wrote this data directory, or a newer one",
            )
        for name, value in fields.items():
            if type(value) not in _FIELDS[name] or (type(value) is int and not 0 <= value < 1 << 63):
                raise ValueError(f"{name} is none")
        for name in {"history", "peers", "moved"} & fields.keys():
            fields[name] = tuple(_pair(each, int if name == "history" else str) for each in fields[name])
        for name in ("silent_until", "installing"):
            if fields.get(name) is not None:
                fields[name] = _pair(fields[name], int)
        if fields.get("running") is not None:
            fields["running"] = _pair(fields["running"], str)
        if len(fields.get("log_id", NO_LOG_ID)) != len(NO_LOG_ID):
            raise ValueError("log_id is none")
        fields["recovering_until"] = fields.pop("silent_until", None)  # The key is that of the first release.
        return cls(**fields)


_FIELDS: dict[str, tuple[type, ...]] = {
    "cluster_id": (str,),
    "node_id": (str,),
    "incarnation": (str,),
    "term": (int,),
    "vote": (str,),
    "history": (list,),
    "membership": (bytes,),
    "commit_hint": (int,),
    "peers": (list,),
    "silent_until": (list, type(None)),
    "member_id": (str,),
    "installing": (list, type(None)),
    "running": (list, type(None)),
    "lost_power": (bool,),
    "log_id": (bytes,),
    "promise_us": (int,),
    "moved": (list,),
    "moved_generation": (int,),
    "group": (int,),
}


def _pair(value: object, kind: type) -> tuple[Any, Any]:
    if type(value) is not list or [*map(type, value)] != [kind, kind]:
        raise ValueError("something is no pair")
    return value[0], value[1]


@value_class(kw_only=False)
class _Copy:
    """The content of one of the two files: ``state`` None = not readable, then ``problem`` has the reason."""

    exists: bool
    version: int = 0
    packed: bytes = b""
    state: ControlState | None = None
    problem: str = ""


class ControlFile:
    """Term, vote, history, membership, commit hint and identity of a node, durable.

    Invariants:
      * a version that :meth:`write` returned for is in both copies
      * after a failed write nothing is written any more
    """

    def __init__(self, disk: Disk, directory: str, version: int, state: ControlState | None) -> None:
        self.state = state
        """The latest state; None = empty, never written."""
        self._disk = disk
        self._directory = directory
        self._version = version
        self._failure: BaseException | None = None

    @classmethod
    def open(cls, disk: Disk, directory: str) -> ControlFile:
        """Read both copies, take the one that the table allows, and make it durable in both; blocking.

        Raises:
          CorruptionError: neither copy is readable, or they do not belong together; nothing was changed.
          ConfigError: a copy has a newer format.
          StorageError: the disk failed.
        """
        copies = [_read(disk, f"{directory}/{name}") for name in CONTROL_NAMES]
        newest = _choose(directory, copies)
        if newest is None:
            return cls(disk, directory, 0, None)
        chosen = copies[newest]
        control = cls(disk, directory, chosen.version, chosen.state)
        disk.sync_directory(directory)
        # The chosen copy first: either it is durable, and these are the same bytes, or the other one is intact.
        for name in (CONTROL_NAMES[newest], CONTROL_NAMES[1 - newest]):
            control._write_copy(f"{directory}/{name}", chosen.packed)
        return control

    def write(self, state: ControlState) -> None:
        """Make ``state`` durable in both copies; blocking, for one thread at a time.

        Raises:
          StorageError: final; which state a restart will find is open.
        """
        if self._failure is not None:
            raise StorageError(f"the control file in {self._directory} has failed before") from self._failure
        try:
            packed = _encode(self._version + 1, state)
            for name in CONTROL_NAMES:
                self._write_copy(f"{self._directory}/{name}", packed)
        except BaseException as error:
            self._failure = error
            raise
        self._version += 1
        self.state = state

    def _write_copy(self, path: str, packed: bytes) -> None:
        disk = self._disk
        if not disk.exists(path):
            temporary = f"{path}.temporary"
            file = create_anew(disk, temporary)
            try:
                file.write(0, [packed])
                file.sync()
            finally:
                file.close()
            disk.rename(temporary, path)
            disk.sync_directory(self._directory)
            return
        file = disk.open(path)
        try:
            file.write(0, [packed])
            if file.size() > len(packed):
                file.truncate(len(packed))
            file.sync()
        finally:
            file.close()


def read_control_state(disk: Disk, directory: str) -> ControlState | None:
    """Return the content of the control file, None = empty. Changes nothing, so it works on a running node's file.

    Raises:
      CorruptionError, ConfigError, StorageError: as :meth:`ControlFile.open`.
    """
    copies = [_read(disk, f"{directory}/{name}") for name in CONTROL_NAMES]
    newest = _choose(directory, copies)
    return None if newest is None else copies[newest].state


def is_control_lost(disk: Disk, directory: str) -> bool:
    """Return whether no copy can be read, missing or not: then the node's vote and term are unknown.

    Raises:
      ConfigError, StorageError: as :meth:`ControlFile.open`.
    """
    return all(_read(disk, f"{directory}/{name}").state is None for name in CONTROL_NAMES)


def _choose(directory: str, copies: list[_Copy]) -> int | None:
    """Return which copy holds; None = empty. The table is in the module's docstring."""
    a, b = copies
    if not a.exists and not b.exists:
        return None
    if a.state is None and b.state is None:
        raise _unreadable(directory, 0 if a.exists else 1, copies)
    if a.state is None or b.state is None:
        return 0 if a.state is not None else 1
    if abs(a.version - b.version) > 1:
        older = 0 if a.version < b.version else 1
        path = f"{directory}/{CONTROL_NAMES[older]}"
        newer = copies[1 - older].version
        raise CorruptionError(
            f"{path} has version {copies[older].version}, the other copy {newer}: they were not written together",
            path=path,
            location=8,
            expected=f"version {newer} or {newer - 1}",
            found=f"version {copies[older].version}",
            remedy="put back both control files of the same time, or replace this node by a new one",
        )
    return 0 if a.version >= b.version else 1


def _encode(version: int, state: ControlState) -> bytes:
    body = state.encode()
    packed = bytearray(-(-(_HEADER.size + len(body)) // _PAGE) * _PAGE)
    _HEADER.pack_into(packed, 0, _MAGIC + bytes([FORMAT_VERSION]), 0, version, len(body))
    packed[_HEADER.size : _HEADER.size + len(body)] = body
    struct.pack_into("<I", packed, 4, _checksum(packed))
    return bytes(packed)


def _checksum(packed: bytes | bytearray) -> int:
    view = memoryview(packed)
    return crc32c(view[8:], crc32c(view[:4]))


def _read(disk: Disk, path: str) -> _Copy:
    try:
        file = disk.open_read(path)
    except FileNotFoundError:
        return _Copy(False, problem="no such file")
    try:
        packed = file.read(0, file.size())
    finally:
        file.close()
    return _decode(packed, path)


def decode_copy(packed: bytes) -> ControlState | None:
    """Decode the bytes of one of the two files; None = they are not readable. For checkers.

    Raises:
      ConfigError: they have a newer format.
    """
    return _decode(packed, "a control file").state


def _decode(packed: bytes, path: str) -> _Copy:
    if len(packed) < _HEADER.size:
        return _Copy(True, problem=f"{len(packed)} bytes")
    magic, checksum, version, body_size = _HEADER.unpack_from(packed)
    # A torn write of a longer or a shorter state leaves bytes of both, so only the pages of this version count.
    size = -(-(_HEADER.size + body_size) // _PAGE) * _PAGE
    if magic[:3] != _MAGIC or len(packed) < size:
        return _Copy(True, problem=f"{len(packed)} bytes that start with {magic!r}")
    found = _checksum(packed[:size])
    if found != checksum:
        return _Copy(True, problem=f"checksum {found:#010x}, expected {checksum:#010x}")
    if magic[3] != FORMAT_VERSION:
        raise ConfigError(
            f"{path} has format {magic[3]}, this version of viewstamp reads {FORMAT_VERSION}",
            remedy="run the version of viewstamp that wrote this data directory, or a newer one",
        )
    try:
        state = ControlState.decode(packed[_HEADER.size : _HEADER.size + body_size])
    except (ValueError, TypeError) as error:
        return _Copy(True, problem=f"an intact checksum, but the content is not a control state: {error}")
    return _Copy(True, version, packed[:size], state)


def _unreadable(directory: str, which: int, copies: list[_Copy]) -> CorruptionError:
    path = f"{directory}/{CONTROL_NAMES[which]}"
    return CorruptionError(
        f"no copy of the control file is readable: {CONTROL_NAMES[0]}: {copies[0].problem};"
        f" {CONTROL_NAMES[1]}: {copies[1].problem}",
        path=path,
        location=0,
        expected="a control file",
        found=copies[which].problem,
        remedy="keep the directory, the other members go on without this one; do not put an older copy of the file "
        "back, because it lacks this node's latest votes, and the node could vote twice in a term",
    )
