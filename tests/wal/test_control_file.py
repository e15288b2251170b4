from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.logs import IDENTITY, new_disk
from viewstamp.errors import ConfigError, CorruptionError, StorageError
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState, read_control_state

A, B = (f"/data/{name}" for name in CONTROL_NAMES)


def state(term: int, membership: bytes = b"") -> ControlState:
    return ControlState(**IDENTITY, term=term, vote="n2", history=((0, 1), (term, 5)), membership=membership)


def written(*terms: int) -> SimulatedDisk:
    """Return a disk with a control file that was written once for each of ``terms``, in order."""
    disk = new_disk()
    control = ControlFile.open(disk, "/data")
    for term in terms:
        control.write(state(term))
    return disk


def spoil(disk: SimulatedDisk, path: str) -> None:
    disk.flip(path, 30)


def read(disk: SimulatedDisk, path: str) -> bytes:
    return bytes(disk.volume.find(path).data)


def put(disk: SimulatedDisk, path: str, data: bytes) -> None:
    disk.volume.adopt(path, data)


def test_a_control_file_that_was_never_written_is_empty() -> None:
    assert ControlFile.open(new_disk(), "/data").state is None


def test_a_written_state_is_read_back_whole() -> None:
    disk = new_disk()
    wanted = ControlState(
        **IDENTITY,
        term=7,
        vote="n3",
        history=((0, 1), (3, 10), (7, 10)),
        membership=b"\x00members",
        commit_hint=9,
        peers=(("n2", "abc"),),
    )
    ControlFile.open(disk, "/data").write(wanted)
    assert ControlFile.open(disk, "/data").state == wanted
    assert read_control_state(disk, "/data") == wanted


def test_both_copies_hold_every_version_that_was_acknowledged() -> None:
    disk = written(1, 2, 3)
    assert read(disk, A) == read(disk, B)


@pytest.mark.parametrize("path", [A, B])
def test_one_intact_copy_is_enough_and_the_other_is_brought_up_to_it(path: str) -> None:
    """Row 4 of the table: rot in one copy loses nothing, and the next opening works with either copy."""
    disk = written(1, 2)
    whole = read(disk, path)
    spoil(disk, path)
    assert ControlFile.open(disk, "/data").state == state(2)
    assert read(disk, path) == whole


@pytest.mark.parametrize("path", [A, B])
def test_a_missing_copy_is_made_again(path: str) -> None:
    disk = written(1)
    disk.remove(path)
    assert ControlFile.open(disk, "/data").state == state(1)
    assert read(disk, A) == read(disk, B)


@pytest.mark.parametrize("newer", [A, B])
def test_the_newer_of_two_neighbours_counts_and_stays_when_it_rots_afterwards(newer: str) -> None:
    """Row 3: the node may have acted on a state that it read, so both copies contain it when opening returns."""
    disk = written(1)
    older = B if newer == A else A
    before = read(disk, older)
    ControlFile.open(disk, "/data").write(state(2))
    put(disk, older, before)
    assert ControlFile.open(disk, "/data").state == state(2)
    spoil(disk, newer)
    assert ControlFile.open(disk, "/data").state == state(2)


def test_copies_that_were_not_written_together_are_damage() -> None:
    disk = written(1)
    before = read(disk, B)
    control = ControlFile.open(disk, "/data")
    control.write(state(2))
    control.write(state(3))
    put(disk, B, before)
    with pytest.raises(CorruptionError, match="control-b has version 1, the other copy 3") as caught:
        ControlFile.open(disk, "/data")
    assert (caught.value.path, caught.value.location) == (B, 8)


def test_two_unreadable_copies_are_damage_and_not_empty() -> None:
    disk = written(1)
    spoil(disk, A)
    spoil(disk, B)
    with pytest.raises(CorruptionError, match="no copy of the control file is readable"):
        ControlFile.open(disk, "/data")


@pytest.mark.parametrize("path", [A, B])
def test_an_unreadable_copy_without_another_is_damage_and_not_empty(path: str) -> None:
    disk = written(1)
    disk.remove(A if path == B else B)
    spoil(disk, path)
    with pytest.raises(CorruptionError, match="no such file"):
        ControlFile.open(disk, "/data")


def test_a_newer_format_is_refused_by_name() -> None:
    from viewstamp.wal import control_file

    disk = written(1)
    packed = bytearray(read(disk, A))
    packed[3] = 2
    packed[4:8] = control_file._checksum(packed).to_bytes(4, "little")
    put(disk, A, bytes(packed))
    with pytest.raises(ConfigError, match="has format 2, this version of viewstamp reads 1"):
        ControlFile.open(disk, "/data")


def test_a_shorter_state_replaces_a_longer_one() -> None:
    disk = new_disk()
    control = ControlFile.open(disk, "/data")
    control.write(state(1, membership=bytes(9000)))
    control.write(state(2))
    assert ControlFile.open(disk, "/data").state == state(2)
    assert len(read(disk, A)) == 4096


def test_a_failed_write_is_final() -> None:
    disk = written(1)
    control = ControlFile.open(disk, "/data")
    disk.fail("sync")
    with pytest.raises(StorageError, match="cannot sync"):
        control.write(state(2))
    with pytest.raises(StorageError, match="has failed before"):
        control.write(state(2))
    assert control.state == state(1)


def test_a_copy_whose_sync_failed_is_durable_after_opening_although_the_system_thinks_it_already_was() -> None:
    """Found by seed 74: one copy is in the page cache only, and a power cut takes it back by two versions."""
    for cut in range(20):
        disk = written(1)
        control = ControlFile.open(disk, "/data")
        disk.fail("sync", after=1)
        with pytest.raises(StorageError):
            control.write(state(2))
        disk.kill()
        found = ControlFile.open(disk, "/data")
        assert found.state == state(2)
        disk.crash_at(disk.calls + 3)  # Inside the write of the second copy, after the sync of the first.
        with pytest.raises(SimulatedCrash):
            found.write(state(3))
        disk.crash(random.Random(cut))
        assert ControlFile.open(disk, "/data").state in (state(2), state(3))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_every_single_bit_flip_in_both_copies_is_noticed(data: st.DataObject) -> None:
    """A flip in one copy is repaired from the other; the same flip in both copies is detected."""
    disk = written(3)
    at = data.draw(st.integers(0, len(read(disk, A)) - 1))
    bit = data.draw(st.integers(0, 7))
    disk.flip(A, at, bit)
    assert read_control_state(disk, "/data") == state(3)
    disk.flip(B, at, bit)
    with pytest.raises(CorruptionError):
        read_control_state(disk, "/data")


def test_a_vote_survives_a_death_at_any_call_of_writing_it_and_of_reading_it_again() -> None:
    """Crash at every disk call of a write.

    Then, on the files of a killed process, cut the power at every call of opening.
    """
    ready = written(1)
    ControlFile.open(ready, "/data").write(state(1, bytes(5000)))
    call = 0
    acknowledged = False
    while not acknowledged:
        call += 1
        disk = SimulatedDisk(f"write {call}")
        disk.volume = copy.deepcopy(ready.volume)
        control = ControlFile.open(disk, "/data")
        disk.crash_at(disk.calls + call)
        try:
            control.write(state(2, bytes(range(256)) * 20))
            acknowledged = True
        except SimulatedCrash:
            disk.kill()
        seen = read_control_state(disk, "/data")
        assert seen is not None
        assert seen.term == 2 or not acknowledged
        for seed in range(30):
            for inner in range(1, 6):
                after = SimulatedDisk()
                after.volume = copy.deepcopy(disk.volume)
                after.crash_at(inner)
                promised = 0
                try:
                    opened = ControlFile.open(after, "/data").state
                    promised = opened.term if opened is not None else 0
                except SimulatedCrash:
                    pass
                after.crash(random.Random(f"{call} {seed} {inner}"))
                found = ControlFile.open(after, "/data").state
                assert found is not None
                assert found.term >= (2 if acknowledged else max(1, promised))
    assert call > 4
