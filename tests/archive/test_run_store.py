"""The objects of runs: batches in the order of their positions, and names by id."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from viewstamp.archive.run_store import RunObjects
from viewstamp.archive.store import DirectoryObjects
from viewstamp.errors import FrameError
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.batch import Batch, build_batch

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

TOPIC, RUN = TopicId(3), RunId(900)


def objects(path: Path) -> RunObjects:
    return RunObjects(DirectoryObjects(RealDisk(), str(path / "store")), ClusterId("c1"))


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
    folder.mkdir(parents=True)
    for name in ("notes.txt", f"{5:020d}.parquet.temporary", f"{6:020d}.parquet", "7.parquet"):
        (folder / name).write_bytes(b"x")
    assert store.list_sizes() == {6: 1}
