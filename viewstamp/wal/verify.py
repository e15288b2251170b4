"""Checking a log's files without the node, changing nothing: what ``viewstamp wal verify`` prints."""

from __future__ import annotations

import posixpath
from dataclasses import asdict, dataclass

from viewstamp.errors import CorruptionError
from viewstamp.host.interfaces import Disk
from viewstamp.wal.reader import survey_of
from viewstamp.wal.recovery import Damage, Survey, Verdict

__all__ = ["Verification", "verify"]

_LOOKS_MAX = 10
"""How often a log is looked at again while the place that seems damaged moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What became of every byte of a log. ``last_index`` is inclusive; ``first_index - 1`` where there is no record."""

    path: str
    verdict: Verdict
    segments: int
    batches: int
    records: int
    first_index: int
    last_index: int
    torn_bytes: int
    damage: tuple[Damage, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the keys and values that ``--output json`` prints."""
        return {**asdict(self), "damage": [asdict(damage) for damage in self.damage]}


def verify(disk: Disk, path: str) -> Verification:
    """Read all of a data directory, a log directory or one segment file, and check every checksum; blocking.

    May be asked about a running node: its writes can make a place look damaged that is only being written, so
    damage counts when it is seen twice at the same place.

    Raises:
      ConfigError: ``path`` is no log, or one of a newer format.
      StorageError: a file cannot be read.
    """
    found = _look(disk, path)
    for _ in range(_LOOKS_MAX):
        if found.verdict != "corruption":
            break
        before, found = found, _look(disk, path)
        if found.damage == before.damage:
            break
    return found


def _look(disk: Disk, path: str) -> Verification:
    survey: Survey | None = None
    try:
        survey = survey_of(disk, path).run()
        damage = tuple(survey.damage)
    except FileNotFoundError as error:
        # Listed, and gone a moment later: a running node truncates its log. The next look will know.
        name = posixpath.basename(error.filename or path)
        damage = (Damage(segment=name, location=0, expected="a file that was listed", found="no such file"),)
    except CorruptionError as error:
        name = posixpath.basename(error.path)
        damage = (Damage(segment=name, location=error.location, expected=error.expected, found=error.found),)
    return Verification(
        path=path,
        verdict=survey.verdict if survey is not None else "corruption",
        segments=len(survey.segments) if survey is not None else 0,
        batches=survey.batches if survey is not None else 0,
        records=survey.records if survey is not None else 0,
        first_index=survey.first_index if survey is not None else 1,
        last_index=survey.end - 1 if survey is not None else 0,
        torn_bytes=survey.torn_bytes if survey is not None else 0,
        damage=damage,
    )
