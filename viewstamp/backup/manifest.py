"""The manifest: the description of one backup, as JSON with a digest of its own.

| format | of a cluster |
| --- | --- |
| 1 | with group 0 only |
| 2 | with other groups: the key ``groups`` has the log of each. A release before refuses it, because it would restore \
group 0 without the records of the streams |
| 3 | the same, and records of streams are archived: the log of a group has ``archived`` |

A reader that does not know the format number of a manifest rejects it by name. The digest covers all other keys, so a
half-written or changed manifest is recognised. The manifest of a backup is written after all its objects; so a backup
whose manifest is whole is whole, unless an object was damaged or removed later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from viewstamp.backup.objects import MANIFESTS, LogPiece, StoredObject
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["FORMAT_VERSION", "LogCopy", "Manifest", "SnapshotCopy", "archived_of", "manifest_name"]

FORMAT_VERSION: Final = 3
_WITHOUT_ARCHIVED_STREAMS: Final = 2
_WITHOUT_GROUPS: Final = 1
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
class LogCopy:
    """The log of one group in a backup: its pieces in order, without gaps, up to the index ``end`` (exclusive).

    ``node`` is the member that it was read from. ``term`` and ``log_time`` are those of the last record. ``snapshot``
    None = the log begins at index 1, and there was no snapshot. ``chain`` and ``lineage`` are the checksums of the
    source's state at ``end``; None = unknown, because the source did not run, or had applied more. ``archived`` has the
    last archived position of each stream that has such, by its name, as far as it is known; of other groups than 0.
    """

    group: int
    node: str
    end: int
    term: int
    log_time: int
    snapshot: SnapshotCopy | None
    log: tuple[LogPiece, ...]
    chain: int | None = None
    lineage: int | None = None
    archived: Mapping[str, int] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        """The first index of the log in this backup."""
        return self.log[0].start if self.log else self.end

    @property
    def objects(self) -> Sequence[StoredObject]:
        """All objects of this log."""
        return [*self.log, *(self.snapshot.parts if self.snapshot is not None else ())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of one backup. Log, snapshot and checksums are those of group 0, as in :class:`LogCopy`.

    ``topics``, ``sinks`` and ``actors`` describe the state of group 0 at ``end``, as far as it is known. ``sent_bytes``
    are the bytes of objects that earlier backups did not have. ``previous`` is the id of the newest backup in the
    target when this one was taken; "" = none. ``groups`` are the logs of the other groups, rising by their ids.
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
    groups: tuple[LogCopy, ...] = ()

    @property
    def group_0(self) -> LogCopy:
        """The log of group 0."""
        return LogCopy(
            group=0,
            node=self.node,
            end=self.end,
            term=self.term,
            log_time=self.log_time,
            snapshot=self.snapshot,
            log=self.log,
            chain=self.chain,
            lineage=self.lineage,
        )

    @property
    def logs(self) -> Sequence[LogCopy]:
        """The logs of all groups, that of group 0 first."""
        return [self.group_0, *self.groups]

    @property
    def begin(self) -> int:
        """The first index of the log in this backup."""
        return self.log[0].start if self.log else self.end

    @property
    def archived(self) -> dict[str, int]:
        """The last archived position of each topic that has such; the files of the archive are not in the backup.

        Stream 1 of a topic ``orders`` has the name ``orders.1``, and positions of its own.
        """
        return {
            **archived_of(self.topics),
            **{name: last for log in self.groups for name, last in log.archived.items()},
        }

    @property
    def objects(self) -> Sequence[StoredObject]:
        """All objects that this backup needs."""
        return [each for log in self.logs for each in log.objects]

    @property
    def size(self) -> int:
        """The bytes of all objects."""
        return sum(each.size for each in self.objects)

    def encode(self) -> bytes:
        """Return the content of the manifest's file."""
        fields = {"kind": _KIND, "format": FORMAT_VERSION, **asdict(self)}
        if not self.groups:  # A release before reads the backups of clusters with group 0 only.
            fields["format"] = _WITHOUT_GROUPS
            del fields["groups"]
        elif not any(log.archived for log in self.groups):  # The same.
            fields["format"] = _WITHOUT_ARCHIVED_STREAMS
        for log in fields.get("groups", ()):
            if not log["archived"]:
                del log["archived"]
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
        if version not in (_WITHOUT_GROUPS, _WITHOUT_ARCHIVED_STREAMS, FORMAT_VERSION):
            raise ConfigError(
                f"{path} has format {brief_repr(version)}, this version of viewstamp reads up to {FORMAT_VERSION}",
                remedy="use the version of viewstamp that wrote this backup, or a newer one",
            )
        try:
            return _manifest(fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, data, error) from error


def archived_of(topics: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the last archived position of each of the described topics that has such."""
    return {each["name"]: each["archived_last"] for each in topics if "archived_last" in each}


def manifest_name(backup: str) -> str:
    """Return the name of the manifest of the backup with this id."""
    return f"{MANIFESTS}{backup}.json"


def _manifest(fields: dict[str, Any]) -> Manifest:
    has_groups = fields.pop("format") > _WITHOUT_GROUPS
    del fields["kind"]
    groups = tuple(LogCopy(**_with_objects(each)) for each in fields.pop("groups")) if has_groups else ()
    ids = [each.group for each in groups]
    if has_groups and (not ids or ids != sorted({*ids}) or ids[0] < 1):
        raise ValueError(f"the groups {ids}")
    fields |= {key: tuple(fields[key]) for key in ("topics", "sinks", "actors")}
    return Manifest(**_with_objects(fields), groups=groups)


def _with_objects(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a log, with its objects in place of their fields."""
    snapshot = fields.pop("snapshot")
    if snapshot is not None:
        parts = tuple(StoredObject(**part) for part in snapshot.pop("parts"))
        snapshot = SnapshotCopy(**snapshot, parts=parts)
    log = tuple(LogPiece(**piece) for piece in fields.pop("log"))
    return {**fields, "snapshot": snapshot, "log": log}


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
