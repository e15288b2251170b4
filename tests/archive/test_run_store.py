"""The objects of runs: batches in the order of their positions, and names by id."""

from __future__ import annotations

from array import array
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.mutants import patched
from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.errors import CorruptionError, FrameError, StorageError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, GlobalPosition, GroupId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.batch import Batch, build_batch
from viewstamp.wire.ordering import GlobalRun
from viewstamp.wire.run_order import RunOrder

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

TOPIC, RUN = TopicId(3), RunId(900)


def objects(path: Path) -> RunObjects:
    store = RunObjects(DirectoryObjects(RealDisk(), str(path / "store")), ClusterId("c1"))
    assert store.recognise([]), "a new store"
    return store


def batch(first: int, count: int, topic: TopicId = TOPIC) -> Batch:
    """Return a batch as a reader of a topic gets it."""
    built = build_batch([b"value %d" % (first + at) for at in range(count)], topic=topic)
    return Batch.decode(b"".join(built.placed(Position(first), 7)))


def test_batches_are_cut_at_both_ends_of_a_run(tmp_path: Path) -> None:
    store = objects(tmp_path)
    written = store.begin(RUN, TOPIC, Position(3))
    assert written.add(Position(9), [batch(1, 4).buffer]) == 5
    assert written.add(Position(9), [batch(5, 1).buffer, batch(6, 5).buffer, batch(11, 1).buffer]) == 9
    described = written.finish()
    assert store.list_sizes() == {900: described.size}
    run = ArchivedRun(RUN, TOPIC, Position(3), Position(9), "committed", "", described.size, described.digest)
    assert sum(store.check(run)) > 0
    store.remove(RUN)
    assert store.list_sizes() == {}


@pytest.mark.parametrize("wrong", [batch(6, 2), batch(3, 2), batch(5, 2, TopicId(4))])
def test_a_batch_that_is_not_the_next_one_is_refused(tmp_path: Path, wrong: Batch) -> None:
    store = objects(tmp_path)
    written = store.begin(RUN, TOPIC, Position(3))
    written.add(Position(9), [batch(3, 2).buffer])
    with pytest.raises(FrameError, match="is not the batch of topic 3 that holds position 5"):
        written.add(Position(9), [wrong.buffer])
    written.abandon()
    assert store.list_sizes() == {}


def test_other_files_in_the_folder_are_no_objects_of_runs(tmp_path: Path) -> None:
    store = objects(tmp_path)
    folder = tmp_path / "store" / "c1"
    for name in ("notes.txt", f"{5:020d}.parquet.temporary", f"{6:020d}.parquet", "7.parquet"):
        (folder / name).write_bytes(b"x")
    assert store.list_sizes() == {6: 1}


def test_a_store_is_recognised_by_any_of_the_runs_and_gets_a_folder_only_if_it_may_be_new(tmp_path: Path) -> None:
    store, path = objects(tmp_path), tmp_path / "store"
    written = store.begin(RUN, TOPIC, Position(3))
    written.add(Position(9), [batch(3, 6).buffer])
    described = written.finish()
    run = ArchivedRun(RUN, TOPIC, Position(3), Position(9), "committed", "", described.size, described.digest)
    lost = replace(run, id=RunId(RUN + 1))
    assert store.recognise([run])
    assert store.recognise([lost, run])
    assert not store.recognise([lost])
    assert not store.recognise([replace(run, origin="c2")]), "the same id of another cluster"
    path.rename(tmp_path / "away")
    of_group = store.of_group(GroupId(7))
    assert not store.recognise([run])
    assert not of_group.recognise([run]), "group 0 has a run, so the store is not new for this group either"
    assert not path.exists()
    with pytest.raises(StorageError, match="there is no directory"):
        store.begin(RunId(RUN + 2), TOPIC, Position(9))
    assert not path.exists()
    (tmp_path / "away").rename(path)
    assert of_group.recognise([run])
    assert [each.name for each in sorted(path.iterdir())] == ["c1", "c1@7"], "for the first run of the group"


# Streams.


def order_of(*runs: tuple[int, int, int, int]) -> list[GlobalRun]:
    return [GlobalRun(version, GlobalPosition(at), Position(local), length) for version, at, local, length in runs]


ORDER = order_of((4, 11, 1, 4), (6, 21, 5, 9))


def of_stream(path: Path, order: list[GlobalRun] = ORDER) -> tuple[RunObjects, ArchivedRun]:
    """Write the run of a stream of group 7, positions 3 to 8."""
    store = objects(path).of_group(GroupId(7))
    assert store.recognise([])
    written = store.begin(RUN, TOPIC, Position(3))
    assert written.add(Position(9), [batch(1, 4).buffer], order) == 5
    assert written.add(Position(9), [batch(5, 5).buffer], order) == 9
    described = written.finish()
    return store, ArchivedRun(
        *(RUN, TOPIC, Position(3), Position(9), "committed", "", described.size, described.digest),
        group=GroupId(7),
        first_global=GlobalPosition(described.first_global),
        end_global=GlobalPosition(described.end_global),
    )


def test_the_file_of_a_stream_has_the_global_positions_for_readers_and_for_other_programs(tmp_path: Path) -> None:
    from pyarrow import parquet

    store, run = of_stream(tmp_path)
    assert (run.first_global, run.end_global) == (13, 25)
    assert sum(store.check(run)) > 0
    order = objects(tmp_path).order(run)
    assert order.runs_at(3, 9) == order_of((4, 13, 3, 2), (6, 21, 5, 4)), "whoever reads it"
    rows = parquet.read_table(tmp_path / "store" / "c1@7" / f"{RUN:020d}.parquet").to_pylist()
    assert [(row["position"], row["global_position"]) for row in rows] == [
        *((3, 13), (4, 14), (5, 21), (6, 22), (7, 23), (8, 24)),
    ]
    other = order_of((4, 11, 1, 4), (6, 22, 5, 9))
    assert of_stream(tmp_path / "other", other)[1].digest != run.digest, "the digest is also that of the order"


def test_ids_of_two_groups_may_be_equal_and_no_group_lists_or_removes_the_files_of_another(tmp_path: Path) -> None:
    home = objects(tmp_path)
    written = home.begin(RUN, TOPIC, Position(3))
    written.add(Position(9), [batch(3, 6).buffer])
    plain = written.finish()
    store, run = of_stream(tmp_path)
    assert home.list_sizes() == {RUN: plain.size}
    assert store.list_sizes() == {RUN: run.size}
    home.remove(RUN)
    assert (home.list_sizes(), store.list_sizes()) == ({}, {RUN: run.size})
    with pytest.raises(CorruptionError, match="it is not there"):
        list(home.check(replace(run, group=GroupId(0))))
    (tmp_path / "store" / "c1@8").mkdir()
    (tmp_path / "store" / "c1@7" / f"{RUN:020d}.parquet").rename(tmp_path / "store" / "c1@8" / f"{RUN:020d}.parquet")
    with pytest.raises(CorruptionError, match="is that of run 900 of group 7 of cluster c1, not of run 900 of group 8"):
        list(store.check(replace(run, group=GroupId(8))))


def test_an_order_that_is_not_that_of_the_catalogue_is_damage(tmp_path: Path) -> None:
    store, run = of_stream(tmp_path)
    with pytest.raises(CorruptionError, match="the catalogue has"):
        store.order(replace(run, end_global=GlobalPosition(26)))
    with pytest.raises(CorruptionError, match="with digest"):
        store.order(replace(run, digest=bytes(32)))
    with pytest.raises(FrameError, match="position 5 of the stream is missing"):
        of_stream(tmp_path / "short", ORDER[:1])


def test_a_column_of_global_positions_that_is_not_the_order_is_damage(tmp_path: Path) -> None:
    original = RunOrder.positions

    def shifted(self: RunOrder, first: int, count: int) -> array[int]:
        return array("q", (position + 1 for position in original(self, first, count)))

    with patched(RunOrder, positions=shifted):
        store, run = of_stream(tmp_path)
    with pytest.raises(CorruptionError, match="its global positions from position 3 on are not its order"):
        list(store.check(run))
