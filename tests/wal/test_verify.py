from __future__ import annotations

import json

import pytest

from tests.wal.logs import DIRECTORY, IDENTITY, SMALL, contents, make_batches, new_disk, open_wal, write_log
from viewstamp.errors import ConfigError, CorruptionError
from viewstamp.sim.disk import SimulatedDisk
from viewstamp.wal.control_file import CONTROL_NAMES, ControlFile, ControlState
from viewstamp.wal.format import segment_name
from viewstamp.wal.offline import inspect, read_batches, verify
from viewstamp.wal.scan import SegmentScanner
from viewstamp.wire.batch import Batch

BATCHES = make_batches(1, 12, count=2, size=1500)


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a node's data directory: a control file, and a log of several segments."""
    disk = new_disk()
    write_log(disk, [BATCHES[i : i + 2] for i in range(0, 12, 2)])
    ControlFile.open(disk, "/data").write(ControlState(**IDENTITY, commit_hint=23))
    return disk


def test_a_data_directory_a_log_directory_and_a_segment_can_be_verified(disk: SimulatedDisk) -> None:
    whole = verify(disk, "/data")
    assert (whole.verdict, whole.segments, whole.batches, whole.records) == ("clean", 3, 12, 24)
    assert (whole.first_index, whole.last_index, whole.torn_bytes, whole.damage) == (1, 24, 0, ())
    log = verify(disk, DIRECTORY + "/")
    assert (log.verdict, log.batches, log.last_index) == ("clean", 12, 24)
    parts = [verify(disk, f"{DIRECTORY}/{segment_name(number)}") for number in (1, 2, 3)]
    assert [part.verdict for part in parts] == ["clean"] * 3
    assert sum(part.records for part in parts) == 24
    assert [part.segments for part in parts] == [1, 1, 1]
    assert parts[1].first_index == parts[0].last_index + 1


def test_the_output_of_verify_has_the_documented_keys(disk: SimulatedDisk) -> None:
    disk.flip(f"{DIRECTORY}/{segment_name(1)}", 500)
    printed = json.loads(json.dumps(verify(disk, "/data").as_dict()))
    assert set(printed) == {
        "path", "verdict", "segments", "batches", "records", "first_index", "last_index", "torn_bytes", "damage",
    }  # fmt: skip
    [damage] = printed["damage"]
    assert set(damage) == {"segment", "location", "expected", "found"}


def test_verifying_reading_and_inspecting_change_nothing(disk: SimulatedDisk) -> None:
    before = disk.calls
    verify(disk, "/data")
    list(read_batches(disk, "/data"))
    list(inspect(disk, "/data"))
    assert disk.calls == before


def test_the_control_file_of_a_data_directory_contains_the_commit_hint(disk: SimulatedDisk) -> None:
    """Without the control file, the same log reads as a torn tail; its commit hint shows that the place was durable."""
    *_, last = (entry for entry in inspect(disk, "/data") if entry.kind == "batch")
    disk.flip(f"{DIRECTORY}/{segment_name(3)}", last.location + 5)
    assert verify(disk, DIRECTORY).verdict == "torn-tail"
    ControlFile.open(disk, "/data").write(ControlState(**IDENTITY, commit_hint=25))
    for path in ("/data", DIRECTORY):
        found = verify(disk, path)
        assert found.verdict == "corruption"
        assert "below what is known to be committed" in found.damage[0].found


def test_an_unreadable_control_file_is_corruption(disk: SimulatedDisk) -> None:
    for name in CONTROL_NAMES:
        disk.flip(f"/data/{name}", 9)
    found = verify(disk, "/data")
    assert (found.verdict, found.damage[0].segment) == ("corruption", "control-a")


def test_a_control_file_without_a_log_is_corruption(disk: SimulatedDisk) -> None:
    for name in disk.list_directory(DIRECTORY):
        disk.remove(f"{DIRECTORY}/{name}")
    assert verify(disk, "/data").damage[0].expected == "the first segment"


def test_a_path_that_is_no_log_is_refused(disk: SimulatedDisk) -> None:
    for path in ("/data/nothing", "/", f"{DIRECTORY}/{segment_name(9)}"):
        with pytest.raises(ConfigError, match="is no log") as caught:
            verify(disk, path)
        assert "data directory" in caught.value.remedy


def test_the_reader_yields_every_batch_in_order_in_one_forward_pass(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets: list[int] = []
    peek = SegmentScanner.__init__

    def noting(self: SegmentScanner, *arguments: object, **options: object) -> None:
        peek(self, *arguments, **options)  # type: ignore[arg-type]
        read = self._file.read

        def note(offset: int, size: int) -> bytes:
            offsets.append(offset)
            return read(offset, size)

        monkeypatch.setattr(self._file, "read", note)

    monkeypatch.setattr(SegmentScanner, "__init__", noting)
    assert contents(list(read_batches(disk, "/data"))) == contents(BATCHES)
    starts = [i for i, offset in enumerate(offsets) if offset == 0]
    assert len(starts) == 3, "each file is read once, from its start"
    for begin, end in zip(starts, [*starts[1:], len(offsets)], strict=True):
        assert offsets[begin:end] == sorted(offsets[begin:end])


def test_the_reader_stops_with_an_error_at_the_first_damage(disk: SimulatedDisk) -> None:
    found: list[Batch] = []
    disk.flip(f"{DIRECTORY}/{segment_name(2)}", 4000)
    with pytest.raises(CorruptionError, match=segment_name(2)):
        found.extend(read_batches(disk, "/data"))
    assert contents(found) == contents(BATCHES[: len(found)])
    assert len(found) >= 4


def test_the_reader_ends_quietly_at_a_torn_tail(disk: SimulatedDisk) -> None:
    *_, last = (entry for entry in inspect(disk, "/data") if entry.kind == "batch")
    disk.flip(f"{DIRECTORY}/{segment_name(3)}", last.location + 5)
    assert contents(list(read_batches(disk, DIRECTORY))) == contents(BATCHES[:-1])


def test_inspect_draws_segments_groups_and_batches_and_the_end(disk: SimulatedDisk) -> None:
    lines = [str(entry) for entry in inspect(disk, "/data")]
    assert lines[0] == "segment @0 file=00000000000000000001.segment number=1 generation=1 first_index=1"
    assert lines[1] == "  group @64 number=1 durable=0 commit_hint=0 first_index=1 batches=2 bytes=6320"
    assert lines[2].startswith("    batch @144 kind=RECORDS term=1 first_index=1 count=2 topic=0 first_position=1")
    assert sum(line.endswith("closes=segment") for line in lines) == 2, "all segments but the last are sealed"
    assert lines[-1].startswith("end @")
    assert "verdict=clean end=25 torn_bytes=0" in lines[-1]


def test_inspect_shows_the_place_of_damage_and_an_unfinished_truncation(disk: SimulatedDisk) -> None:
    disk.flip(f"{DIRECTORY}/{segment_name(1)}", 300)
    *_, end = inspect(disk, "/data")
    assert (end.kind, end.location, end.fields["verdict"]) == ("end", 144, "corruption")
    assert end.fields["segment"] == segment_name(1)


def test_a_running_node_s_log_can_be_verified_between_its_writes(disk: SimulatedDisk) -> None:
    """A place that is read during a write seems damaged at first, but no longer at the second look."""
    wal, _ = open_wal(disk, SMALL)
    following = make_batches(25, 2, count=2, size=1500)
    looks = []
    set_stop = SegmentScanner._set_stop

    def late(self: SegmentScanner, *arguments: object, **options: object) -> None:
        looks.append(self.scan.number)
        if looks == [1, 2, 3]:
            # The pass has seen the end. Only now, before the check of the bytes behind it, the node writes twice.
            for batch in following:
                wal.append_now([batch])
        set_stop(self, *arguments, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentScanner, "_set_stop", late)
        found = verify(disk, "/data")
    assert looks.count(3) > 1
    assert (found.verdict, found.last_index) == ("clean", 28)
