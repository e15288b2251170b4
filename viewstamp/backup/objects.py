"""The objects of a backup, and their names in the store: immutable files, each named by its content.

| name | content |
| --- | --- |
| ``log/<start>-<end>-<digest>.batches`` | committed batches of the indices from ``start`` up to ``end`` (exclusive) |
| ``snapshots/<end>-<term>-<part>-<digest>.part`` | a part of a snapshot's file, at most 16 MiB |
| ``manifests/<time>-<index>.json`` | the description of one backup; written last |

``digest`` in a name are the first 16 digits of the SHA-256 of the object. The manifest has all 64, so that
``sha256sum`` can check a backup too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from viewstamp.errors import ConfigError, CorruptionError

__all__ = [
    "LOG",
    "MANIFESTS",
    "PIECE_BYTES",
    "PIECE_HEADER",
    "SNAPSHOTS",
    "LogPiece",
    "StoredObject",
    "describe",
    "log_name",
    "part_name",
    "strip_header",
]

LOG = "log/"
MANIFESTS = "manifests/"
SNAPSHOTS = "snapshots/"

PIECE_BYTES = 16 * 1024 * 1024
"""The largest object, apart from a piece that holds one large batch more. It is held in memory as a whole."""

_MAGIC = b"VSBKLOG"
FORMAT_VERSION = 1
PIECE_HEADER = _MAGIC + bytes([FORMAT_VERSION])
"""The first 8 bytes of a piece of the log; batches follow, one behind the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object of the store: its name, its size in bytes, and the SHA-256 of its content in hexadecimal digits."""

    name: str
    size: int
    sha256: str

    def check(self, data: bytes, where: str) -> None:
        """Check the content of this object.

        Raises:
          CorruptionError: it has another size or digest.
        """
        found = hashlib.sha256(data).hexdigest()
        if len(data) != self.size or found != self.sha256:
            raise CorruptionError(
                f"{where}/{self.name} is damaged: {len(data)} bytes with digest {found[:16]}, written were"
                f" {self.size} bytes with digest {self.sha256[:16]}",
                path=f"{where}/{self.name}",
                expected=self.sha256,
                found=found,
                remedy="put the object back from a copy of the target; or restore another backup that does not need it,"
                " which `viewstamp backup verify` names, and take the next backup with --full",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece(StoredObject):
    """A piece of the log: the records from index ``start`` up to ``end`` (exclusive), as whole batches.

    ``previous_term`` is the term of the record before ``start``, ``last_term`` that of the last record. The times are
    the log times of the first and the last batch, in microseconds since 1970.
    """

    start: int
    end: int
    previous_term: int
    last_term: int
    first_time: int
    last_time: int


def describe(name: str, data: bytes) -> StoredObject:
    """Return the description of an object; ``name`` has ``{}`` in the place of the digest."""
    digest = hashlib.sha256(data).hexdigest()
    return StoredObject(name=name.format(digest[:16]), size=len(data), sha256=digest)


def log_name(start: int, end: int) -> str:
    """Return the name of a piece of the log, with ``{}`` for the digest."""
    return f"{LOG}{start:020d}-{end:020d}-{{}}.batches"


def part_name(end: int, term: int, part: int) -> str:
    """Return the name of a part of a snapshot, with ``{}`` for the digest."""
    return f"{SNAPSHOTS}{end:020d}-{term}-{part:06d}-{{}}.part"


def strip_header(data: bytes, path: str) -> memoryview:
    """Return the batches of a piece of the log.

    Raises:
      CorruptionError: it does not begin as a piece.
      ConfigError: it has a newer format.
    """
    if data[: len(_MAGIC)] != _MAGIC or len(data) < len(PIECE_HEADER):
        raise CorruptionError(
            f"{path} is no piece of a log",
            path=path,
            location=0,
            expected=repr(_MAGIC),
            found=repr(data[: len(_MAGIC)]),
            remedy="put the object back from a copy of the target",
        )
    if data[len(_MAGIC)] != FORMAT_VERSION:
        raise ConfigError(
            f"{path} has format {data[len(_MAGIC)]}, this version of viewstamp reads {FORMAT_VERSION}",
            remedy="use the version of viewstamp that wrote this backup, or a newer one",
        )
    return memoryview(data)[len(PIECE_HEADER) :]
