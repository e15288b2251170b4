"""Damages the files of stopped members and compares the contents of their logs."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.node.group import Group
from viewstamp.host.disk import RealDisk
from viewstamp.wal.format import parse_segment_name
from viewstamp.wal.offline import inspect, read_batches


def segments(directory: Path) -> list[Path]:
    """Return the written segments of a member, in order."""
    found = sorted(path for path in (directory / "wal").iterdir() if parse_segment_name(path.name) is not None)
    return [path for path in found if any(path.read_bytes())]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def flip_in_group(path: Path, which: int) -> None:
    """Flip a bit in the body of the first batch of a group."""
    batches = [entry for entry in inspect(RealDisk(), str(path)) if entry.kind == "batch"]
    flip(path, batches[which].location + 100)


def lose_log(directory: Path) -> None:
    shutil.rmtree(directory / "wal")


def batches_of(directory: Path) -> dict[int, bytes]:
    """Return every batch in a member's log, keyed by its first index."""
    return {int(batch.first_index): bytes(batch.buffer) for batch in read_batches(RealDisk(), str(directory))}


def check_same_bytes(group: Group, *, from_index: int = 1) -> None:
    """Check that stopped members hold the same batches, byte for byte.

    The comparison begins at ``from_index``, or at the first index that all members still keep if that is higher.
    """
    logs = {name: batches_of(group.directory / name) for name in group.members}
    first = max([from_index, *(min(log) for log in logs.values())])
    end = min(max(log) for log in logs.values())
    kept = {name: {index: log[index] for index in log if first <= index <= end} for name, log in logs.items()}
    (name, expected), *others = kept.items()
    assert len(expected) > 1
    for other, found in others:
        assert found == expected, f"{other} differs from {name}"
