"""The manifest: the description of one backup, as JSON with a digest of its own.

A reader that does not know the format number of a manifest rejects it by name. The digest covers all other keys, so a
half-written or changed manifest is recognised. The manifest of a backup is written after all its objects; so a backup
whose manifest is whole is whole, unless an object was damaged or removed later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from viewstamp.backup.objects import MANIFESTS, LogPiece, StoredObject
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["FORMAT_VERSION", "Manifest", "SnapshotCopy", "manifest_name"]

FORMAT_VERSION: Final = 1
_KIND: Final = "viewstamp backup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCopy:
    """A snapshot in a backup: the state before index ``end``; its last record has ``term``. ``size`` is in bytes."""

    end: int
    term: int
    size: int
    log_time: int
    parts: tuple[StoredObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of one backup.

    ``log`` are the pieces of the log in order, without gaps; their records end before ``end``. ``snapshot`` None = the
    log begins at index 1, and there was no snapshot. ``chain`` and ``lineage`` are the checksums of the source's state
    at ``end``; None = unknown, because the source did not run. ``topics``, ``sinks`` and ``actors`` describe that
    state, as far as it is known. ``sent_bytes`` are the bytes of objects that earlier backups did not have.
    ``previous`` is the id of the newest backup in the target when this one was taken; "" = none.
    """

    id: str
    cluster: str
    node: str
    created_us: int
    release: str
    end: int
    term: int
    log_time: int
    snapshot: SnapshotCopy | None
    log: tuple[LogPiece, ...]
    chain: int | None = None
    lineage: int | None = None
    topics: tuple[Mapping[str, Any], ...] = ()
    sinks: tuple[Mapping[str, Any], ...] = ()
    actors: tuple[Mapping[str, Any], ...] = ()
    sent_bytes: int = 0
    previous: str = ""

    @property
    def begin(self) -> int:
        """The first index of the log in this backup."""
        return self.log[0].start if self.log else self.end

    @property
    def archived(self) -> dict[str, int]:
        """The last archived position of each topic that has such; the files of the archive are not in the backup."""
        return {each["name"]: each["archived_last"] for each in self.topics if "archived_last" in each}

    @property
    def objects(self) -> Sequence[StoredObject]:
        """All objects that this backup needs."""
        return [*self.log, *(self.snapshot.parts if self.snapshot is not None else ())]

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        return sum(each.size for each in self.objects)

    def encode(self) -> bytes:
        """Return the content of the manifest's file."""
        fields = {"kind": _KIND, "format": FORMAT_VERSION, **asdict(self)}
        return json.dumps({**fields, "sha256": _digest(fields)}, indent=1, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        """Read a manifest.

        Raises:
          ConfigError: it is intact and has a newer format.
          CorruptionError: it is half-written or changed.
        """
        try:
            fields: Any = json.loads(data)
            digest = fields.pop("sha256")
            if fields["kind"] != _KIND or digest != _digest(fields):
                raise ValueError("the digest does not fit")
            version = fields["format"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _damaged(path, data, error) from error
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"{path} has format {brief_repr(version)}, this version of viewstamp reads {FORMAT_VERSION}",
                remedy="use the version of viewstamp that wrote this backup, or a newer one",
            )
        try:
            return _manifest(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, data, error) from error


def manifest_name(backup: str) -> str:
    """Return the name of the manifest of the backup with this id."""
    return f"{MANIFESTS}{backup}.json"


def _manifest(fields: dict[str, Any]) -> Manifest:
    del fields["kind"], fields["format"]
    snapshot = fields.pop("snapshot")
    if snapshot is not None:
        parts = tuple(StoredObject(**part) for part in snapshot.pop("parts"))
        snapshot = SnapshotCopy(**snapshot, parts=parts)
    log = tuple(LogPiece(**piece) for piece in fields.pop("log"))
    fields |= {key: tuple(fields[key]) for key in ("topics", "sinks", "actors")}
    return Manifest(snapshot=snapshot, log=log, **fields)


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _damaged(path: str, data: bytes, error: Exception) -> CorruptionError:
    return CorruptionError(
        f"{path} is no whole manifest ({len(data)} bytes: {str(error) or type(error).__name__})",
        path=path,
        expected="a manifest with its digest",
        found=brief_repr(bytes(data[:40])),
        remedy="the other backups in the target are not affected; remove this file, then `viewstamp backup prune`",
    )
