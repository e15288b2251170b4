"""The directory of a removed group: removed wherever the process dies, and never taken for a member meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.node.group import SMALL
from tests.node.test_cancelled import content_of, with_a_damaged_control_file, with_control, with_file
from tests.node.test_hosting import PATH, host, options
from tests.wal.logs import make_batch
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.node.hosting import complete_directory
from viewstamp.node.removed import remove_removed
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.sim.loop import SimulatedCrash
from viewstamp.wal.control_file import read_control_state
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch

RECORDS = 3


def member(*, vote: str = "n1") -> SimulatedDisk:
    """Return a disk with the directory of a member that has voted, and has records, a snapshot and a repaired file."""
    disk = SimulatedDisk("d")
    disk.make_directory("/n1")
    complete_directory(host(disk, 1), options())
    with_control(term=1, vote="n2")(disk)
    with_control(term=2, vote=vote)(disk)
    state = read_control_state(disk, PATH)
    assert state is not None
    log = Wal.open(disk, f"{PATH}/wal", SMALL, on_batch=lambda _, __: None, must_exist=True, log_id=state.log_id)
    log.append_now([make_batch(index + 1) for index in range(RECORDS)])
    log.abandon()
    disk.make_directory(f"{PATH}/damaged-1")
    for name in ("snapshots/00000000000000000009-1.snapshot", "damaged-1/x"):
        disk.open(f"{PATH}/{name}", create=True).close()
        disk.sync_directory(f"{PATH}/{name.split('/')[0]}")
    return disk


def records_of(disk: SimulatedDisk) -> int | None:
    """Return the number of records of the member in the directory; None = no member has voted; -1 = damaged."""
    state = read_control_state(disk, PATH)
    if state is None or not state.term:
        return None
    assert (state.term, state.vote) == (2, "n1"), "its newest vote"
    found: list[Batch] = []
    try:
        Wal.open(
            disk,
            f"{PATH}/wal",
            SMALL,
            on_batch=lambda batch, _: found.append(batch),
            must_exist=True,
            log_id=state.log_id,
        ).abandon()
    except CorruptionError:
        return -1
    return len(found)


@pytest.mark.parametrize("lags", [False, True])
def test_the_directory_of_a_removed_group_is_removed_wherever_the_process_dies_meanwhile(lags: bool) -> None:
    """After each death it has the whole member, or none; also if its group 0 lags, and it opens the group again."""
    state = read_control_state(member(), PATH)
    assert state is not None
    incarnation = state.incarnation
    call_number, is_over, seen = 0, False, set()
    while not is_over:
        disk = member()
        disk.crash_at(disk.calls + call_number)
        try:
            assert remove_removed(disk, options())
            disk.crash_at(None)
            is_over = True
        except SimulatedCrash:
            pass
        disk.crash(random.Random(call_number))
        seen.add(records_of(disk))
        if lags:
            with suppress(CorruptionError):
                complete_directory(host(disk, 2), options(n1=incarnation))
            seen.add(records_of(disk))
        remove_removed(disk, options())
        assert disk.list_directory("/n1/groups") == []
        assert not remove_removed(disk, options())
        call_number += 1
    assert seen == {RECORDS, None}
    assert call_number > 20


def test_a_member_that_joined_under_another_id_is_removed() -> None:
    disk = member()
    with_control(member_id="n1~1")(disk)
    assert remove_removed(disk, options())
    assert disk.list_directory("/n1/groups") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_control(group=8), "for group 8, which no member"),
        (with_control(node_id="n2"), "of node n2 of cluster"),
        (with_control(cluster_id="b"), "of cluster b for group 7"),
        (with_file("notes"), "has notes, which"),
        (with_a_damaged_control_file, "no copy of the control file is readable"),
    ],
)
def test_a_directory_of_something_else_stays_as_it_is(change: Callable[[SimulatedDisk], None], message: str) -> None:
    disk = member()
    change(disk)
    before = content_of(disk)
    with pytest.raises((ConfigError, CorruptionError), match=message):
        remove_removed(disk, options())
    assert content_of(disk) == before


def test_records_without_a_control_file_are_left_to_people() -> None:
    disk = member()
    for name in ("control-a", "control-b"):
        disk.volume.lose(f"{PATH}/{name}")
    with pytest.raises(ConfigError, match="has damaged-1, snapshots/"):
        remove_removed(disk, options())
    assert disk.exists(f"{PATH}/wal")
