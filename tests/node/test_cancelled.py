"""The directory of a cancelled group: removed wherever the process dies, and only if it holds nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.node.group import SMALL
from tests.node.test_hosting import PATH, host, nothing, options
from tests.wal.logs import make_batch
from viewstamp.errors import ConfigError, CorruptionError, StorageFullError
from viewstamp.node.cancelled import remove_cancelled
from viewstamp.node.hosting import complete_directory
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, read_control_state
from viewstamp.wal.log import Wal


def test_a_cancelled_directory_is_removed_wherever_the_process_dies_meanwhile() -> None:
    call_number, is_over = 0, False
    while not is_over:
        disk = SimulatedDisk("d")
        disk.make_directory("/n1")
        complete_directory(host(disk, 1), options())
        disk.crash_at(disk.calls + call_number)
        try:
            assert remove_cancelled(disk, options())
            disk.crash_at(None)
            is_over = True
        except SimulatedCrash:
            pass
        disk.crash(random.Random(call_number))
        remove_cancelled(disk, options())
        assert disk.list_directory("/n1/groups") == []
        assert not remove_cancelled(disk, options())
        call_number += 1
    assert call_number > 8


def test_a_cancelled_directory_that_was_not_completed_is_removed() -> None:
    call_number, is_over = 0, False
    while not is_over:
        disk = SimulatedDisk("d")
        disk.make_directory("/n1")
        disk.crash_at(disk.calls + call_number)
        try:
            complete_directory(host(disk, 1), options())
            disk.crash_at(None)
            is_over = True
        except SimulatedCrash:
            disk.crash(random.Random(call_number))
        remove_cancelled(disk, options())
        assert disk.list_directory("/n1/groups") == []
        call_number += 1


def with_control(**fields: Any) -> Callable[[SimulatedDisk], None]:
    """Return a function that changes the control file."""

    def change(disk: SimulatedDisk) -> None:
        control = ControlFile.open(disk, PATH)
        assert control.state is not None
        control.write(replace(control.state, **fields))

    return change


def with_file(name: str) -> Callable[[SimulatedDisk], None]:
    """Return a function that adds a file."""
    return lambda disk: disk.open(f"{PATH}/{name}", create=True).close()


def with_a_record(disk: SimulatedDisk) -> None:
    state = read_control_state(disk, PATH)
    assert state is not None
    log = Wal.open(disk, f"{PATH}/wal", SMALL, on_batch=nothing, must_exist=True, log_id=state.log_id)
    log.append_now([make_batch(1)])
    log.abandon()


def without_its_control_file(disk: SimulatedDisk) -> None:
    with_a_record(disk)
    for name in CONTROL_NAMES:
        disk.volume.lose(f"{PATH}/{name}")


def with_another_log(disk: SimulatedDisk) -> None:
    with_a_record(disk)
    with_control(log_id=b"x" * 16)(disk)


def with_a_damaged_control_file(disk: SimulatedDisk) -> None:
    for name in CONTROL_NAMES:
        disk.open(f"{PATH}/{name}").truncate(100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_control(term=3, vote="n2"), "has a control file with term 3, vote 'n2', which"),
        (with_control(group=8), "with group 8, which"),
        (with_control(member_id="n1~1"), "with member_id 'n1~1', which"),
        (with_control(node_id="n2", cluster_id="b"), "with cluster_id 'b', node_id 'n2', which"),
        (with_file("notes"), "has notes, which"),
        (with_file("wal/notes"), "has wal/notes, which"),
        (
            with_file("snapshots/00000000000000000009-1.snapshot"),
            "has snapshots/00000000000000000009-1.snapshot, which",
        ),
        (with_a_record, "has a log with a record at index 1, which"),
        (without_its_control_file, "has a log with a record at index 1, which"),
        (with_another_log, "another log"),
        (with_a_damaged_control_file, "no copy of the control file is readable"),
    ],
)
def test_a_cancelled_directory_with_anything_else_stays_as_it_is(
    change: Callable[[SimulatedDisk], None], message: str
) -> None:
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    complete_directory(host(disk, 1), options())
    change(disk)
    before = content_of(disk)
    with pytest.raises((ConfigError, CorruptionError), match=message):
        remove_cancelled(disk, options())
    assert content_of(disk) == before


def content_of(disk: SimulatedDisk) -> dict[str, bytes]:
    """Return the bytes of all files in the directory."""
    content = {}
    for directory in (PATH, f"{PATH}/wal", f"{PATH}/snapshots"):
        for name in disk.list_directory(directory):
            path = f"{directory}/{name}"
            if path not in disk.volume.directories:
                file = disk.open_read(path)
                content[path] = bytes(file.read(0, file.size()))
                file.close()
    return content


def test_a_cancelled_directory_is_removed_from_a_full_disk() -> None:
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    disk.capacity_bytes = 4096
    with pytest.raises(StorageFullError):
        complete_directory(host(disk, 1), options())
    assert disk.list_directory(PATH)
    assert remove_cancelled(disk, options())
    assert disk.list_directory("/n1/groups") == []
