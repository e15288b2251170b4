"""Segments carry the id of their log.

A segment of another log is refused with its name; a log without ids still works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, SMALL, contents, make_batches, new_disk, open_wal, swallow
from viewstamp.errors import ConfigError
from viewstamp.ids import Index, Term
from viewstamp.replay.replica import assemble, list_segments, scan
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.assessment import assess
from viewstamp.wal.budget import WalOptions
from viewstamp.wal.control_file import ControlFile, ControlState, read_control_state
from viewstamp.wal.format import NO_LOG_ID, SEGMENT_HEADER_SIZE, SegmentHeader, segment_name
from viewstamp.wal.offline import inspect, read_batches, verify
from viewstamp.wal.recovery import check_without_log_id

MINE, OTHER = bytes(range(16)), bytes(range(16, 32))
BATCHES = make_batches(1, 9, count=2, size=2500)
"""Three batches in a segment, so three segments."""


def ids(disk: SimulatedDisk) -> list[bytes]:
    """Return the log ids of the written segments, in order."""
    found = []
    for name in disk.list_directory(DIRECTORY):
        data = bytes(disk.volume.find(f"{DIRECTORY}/{name}").data)
        if name.endswith(".segment") and any(data):
            found.append(SegmentHeader.decode(data[:SEGMENT_HEADER_SIZE], name).log_id)
    return found


def write(log_id: bytes, *, control_id: bytes | None = None, options: WalOptions = SMALL) -> SimulatedDisk:
    disk = new_disk()
    wal, _ = open_wal(disk, options, log_id=log_id)
    for batch in BATCHES:
        wal.append_now([batch])
    wal.abandon()
    state = ControlState(**IDENTITY, log_id=log_id if control_id is None else control_id)  # type: ignore[arg-type]
    ControlFile.open(disk, "/data").write(state)
    return disk


def replay(disk: SimulatedDisk) -> None:
    files = list_segments(disk, "/data")
    assemble(disk, "/data", [scan(disk, file) for file in files])


READERS: dict[str, Callable[[SimulatedDisk], object]] = {
    "start": lambda disk: open_wal(disk, must_exist=True, log_id=MINE),
    "verify": lambda disk: verify(disk, "/data"),
    "read": lambda disk: list(read_batches(disk, f"{DIRECTORY}")),
    "inspect": lambda disk: list(inspect(disk, "/data")),
    "repair": lambda disk: assess(disk, DIRECTORY, log_id=MINE),
    "replay": replay,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_segment_of_another_log_is_refused_by_name(reader: str, number: int) -> None:
    """The segment holds the same records as the right one, so only the log id differs."""
    disk, other = write(MINE), write(OTHER)
    path = f"{DIRECTORY}/{segment_name(number)}"
    disk.volume.find(path).data[:] = other.volume.find(path).data
    before = disk.volume.bytes_used()
    with pytest.raises(ConfigError, match="is a segment of another log: its log id is") as caught:
        READERS[reader](disk)
    assert path in caught.value.message
    assert OTHER.hex() in caught.value.message
    assert MINE.hex() in caught.value.message
    assert disk.volume.bytes_used() == before


def test_segments_of_two_logs_in_one_directory_are_distinguished_without_a_control_file() -> None:
    disk, other = write(MINE), write(OTHER)
    for name in ("control-a", "control-b"):
        disk.remove(f"/data/{name}")
    assert verify(disk, DIRECTORY).verdict == "clean"
    path = f"{DIRECTORY}/{segment_name(3)}"
    disk.volume.find(path).data[:] = other.volume.find(path).data
    with pytest.raises(ConfigError, match="another log"):
        verify(disk, DIRECTORY)


def test_a_log_of_a_version_without_ids_is_read_and_its_new_segments_carry_one() -> None:
    disk = write(NO_LOG_ID)
    check_without_log_id(disk, DIRECTORY)
    assert verify(disk, "/data").verdict == "clean"
    assert "log_id" not in str(next(iter(inspect(disk, "/data"))))
    wal, found = open_wal(disk, must_exist=True, log_id=MINE)
    assert found == contents(BATCHES)
    for batch in make_batches(19, 3, count=2, size=2500):
        wal.append_now([batch])
    wal.abandon()
    assert ids(disk) == [NO_LOG_ID] * 3 + [MINE]
    assert open_wal(disk, must_exist=True, log_id=MINE)[1][:9] == contents(BATCHES)


def test_a_control_file_older_than_the_log_is_refused() -> None:
    disk = write(MINE, control_id=NO_LOG_ID)
    for check in (lambda: check_without_log_id(disk, DIRECTORY), lambda: verify(disk, "/data"), lambda: replay(disk)):
        with pytest.raises(ConfigError, match=r"the control file beside it is older .* names none") as caught:
            check()
        assert "put back the newest control-a and control-b" in caught.value.remedy


def test_recycled_and_reset_segments_carry_it() -> None:
    disk = write(MINE)
    wal, _ = open_wal(disk, must_exist=True, log_id=MINE)
    wal.trim(Index(13), swallow)
    wal._work_now()
    for batch in make_batches(19, 6, count=2, size=2500):
        wal.append_now([batch])
    assert set(ids(disk)) == {MINE}
    wal.reset_now(Index(100), Term(7))
    wal.abandon()
    assert ids(disk) == [MINE]
    again, _ = open_wal(disk, must_exist=True, log_id=MINE, first_index=Index(100))
    assert again.end == 100


def test_the_control_file_keeps_it_and_one_that_is_none_is_refused() -> None:
    disk = write(MINE)
    state = read_control_state(disk, "/data")
    assert state is not None
    assert state.log_id == MINE
    assert ControlState.decode(state.encode()) == state
    with pytest.raises(ValueError, match="log_id is none"):
        ControlState.decode(replace(state, log_id=b"short").encode())
