"""Obsolete files of a log that cannot be removed take space but stop nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.node.hooked_disk import HookedDisk
from tests.wal.logs import DIRECTORY, SMALL, contents, make_batch, make_batches, new_disk, swallow
from viewstamp.errors import StorageError
from viewstamp.host.garbage import Garbage, create_anew
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Index, Term
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.log import Wal

BATCHES = make_batches(1, 20, count=2, size=2500)
"""Three batches in a segment: segments begin at 1, 7, 13, 19, ..."""


class Stubborn:
    """A disk that refuses to remove the files for which ``keeps`` returns True."""

    def __init__(self, keeps: Callable[[str], bool]) -> None:
        self.keeps = keeps
        self.inner = new_disk()
        self.disk: Disk = HookedDisk(self.inner, self._hook)
        self.refused = 0

    def _hook(self, call: str, path: str, _: str) -> bool:
        if call == "remove" and self.keeps(path):
            self.refused += 1
            raise StorageError(f"cannot remove {path}: Device or resource busy")
        return True

    def open(self, options: WalOptions = SMALL, first_index: int = 1) -> tuple[Wal, list[bytes]]:
        found: list[bytes] = []
        wal = Wal.open(
            self.disk,
            DIRECTORY,
            options,
            on_batch=lambda batch, _: found.append(bytes(batch.buffer)),
            first_index=Index(first_index),
        )
        return wal, found


def test_a_trimmed_segment_that_cannot_be_removed_leaves_no_gap_and_is_tried_again() -> None:
    stubborn = Stubborn(lambda path: path.endswith((".segment", ".dropped")))
    wal, _ = stubborn.open()
    for batch in BATCHES:
        wal.append_now([batch])
    wal.trim(Index(31), swallow)
    wal._work_now()
    assert (wal.first_index, wal.failure) == (31, None)
    assert stubborn.refused > 0
    assert wal.stuck_files
    wal.abandon()
    again, found = stubborn.open(first_index=31)
    assert found == contents([batch for batch in BATCHES if batch.first_index >= 31])
    again.append_now([make_batch(41)])
    stubborn.keeps = lambda _: False
    again._spares.retry_removals()
    assert again.stuck_files == {}


@pytest.mark.parametrize("bytes_max", [0, 4 * SMALL.segment_bytes])
def test_no_leftover_that_stays_keeps_a_log_from_opening_and_growing(bytes_max: int) -> None:
    options = WalOptions(segment_bytes=SMALL.segment_bytes, reserve_bytes=0, bytes_max=bytes_max)
    stubborn = Stubborn(lambda path: not path.endswith((".segment", "truncation.mark")))
    stubborn.inner.make_directory(DIRECTORY)
    for name in ("next.temporary", "next.prepared", "00000000000000000007.prepared", "truncation.mark.temporary"):
        create_anew(stubborn.inner, f"{DIRECTORY}/{name}").close()
    wal, _ = stubborn.open(options)
    for batch in BATCHES[:8]:
        wal.append_now([batch])
    wal.truncate(Index(9), swallow)
    wal.reset(Index(100), Term(1), swallow)
    wal._work_now()
    wal.append_now([make_batch(100)])
    assert wal.failure is None
    wal.abandon()
    assert stubborn.open(options, first_index=100)[1] == contents([make_batch(100)])


def test_a_leftover_of_the_control_file_that_stays_is_emptied_and_used() -> None:
    stubborn = Stubborn(lambda _: True)
    for name in ("control-a.temporary", "control-b.temporary"):
        file = create_anew(stubborn.inner, f"/data/{name}")
        file.write(0, [b"x" * 10_000])
        file.close()
    state = ControlState(cluster_id="c", node_id="n1", incarnation="i", term=3)
    ControlFile.open(stubborn.disk, "/data").write(state)
    assert ControlFile.open(stubborn.disk, "/data").state == state


def test_a_file_that_is_gone_or_replaced_meanwhile_is_no_longer_stuck() -> None:
    stubborn = Stubborn(lambda _: True)
    create_anew(stubborn.inner, "/data/one").close()
    garbage = Garbage(stubborn.disk)
    assert not garbage.remove("/data/one")
    assert garbage.stuck == {"/data/one": "cannot remove /data/one: Device or resource busy"}
    assert garbage.retry() == []
    stubborn.inner.remove("/data/one")
    assert garbage.retry() == ["/data/one"]
    assert garbage.stuck == {}


def test_a_removal_that_a_truncation_has_decided_stays_final() -> None:
    stubborn = Stubborn(lambda path: path.endswith(".segment"))
    wal, _ = stubborn.open()
    for batch in BATCHES:
        wal.append_now([batch])
    errors: list[BaseException | None] = []
    wal.truncate(Index(9), errors.append)
    wal._work_now()
    assert isinstance(errors[0], StorageError)
    stubborn.keeps = lambda _: False
    wal.abandon()
    assert stubborn.open()[1] == contents([batch for batch in BATCHES if batch.first_index < 9])
