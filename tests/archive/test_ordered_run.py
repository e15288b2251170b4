"""The run of a stream is read by positions in the topic, or is not the file that the plan means."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.archive.test_run_store import batch, objects, of_stream
from viewstamp.archive.ordered_run import read_ordered
from viewstamp.archive.run_file import RunReader
from viewstamp.client.stream_ranges import StreamRange
from viewstamp.errors import CorruptionError
from viewstamp.ids import Position, RunId, TopicId

pytestmark = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

PLACES = {3: 13, 4: 14, 5: 21, 6: 22, 7: 23, 8: 24}
"""The records of the run of a stream that ``of_stream`` writes, and their positions in the topic."""


def reader_of(path: Path) -> RunReader:
    of_stream(path)
    [file] = (path / "store").rglob("*.parquet")
    return RunReader(io.BytesIO(file.read_bytes()), "run")


def test_records_have_their_positions_in_the_topic(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    for first in PLACES:
        for end in range(first + 1, 10):
            part = StreamRange(2, PLACES[first], PLACES[end - 1] + 1, first, end)
            tables = list(read_ordered(reader, part, "run"))
            found = [place for table in tables for place in table["position"].to_pylist()]
            assert found == [PLACES[local] for local in range(first, end)]
            values = [value for table in tables for value in table["value"].to_pylist()]
            assert values == [b"value %d" % local for local in range(first, end)]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (StreamRange(2, 1, 90, 2, 9), "it has the records 3 to 8, not 2 to 8"),
        (StreamRange(2, 1, 90, 3, 10), "it has the records 3 to 8, not 3 to 9"),
        (StreamRange(2, 14, 90, 3, 9), "have the positions 13 to 24, and the plan has them at 14 to 89"),
        (StreamRange(2, 13, 24, 3, 9), "have the positions 13 to 24, and the plan has them at 13 to 23"),
    ],
)
def test_a_file_with_other_records_than_those_of_the_plan_is_damage(
    tmp_path: Path, part: StreamRange, message: str
) -> None:
    with pytest.raises(CorruptionError, match=message):
        list(read_ordered(reader_of(tmp_path), part, "run"))


def test_the_run_of_another_topic_has_no_positions_of_a_stream(tmp_path: Path) -> None:
    written = objects(tmp_path).begin(RunId(900), TopicId(3), Position(3))
    written.add(Position(9), [batch(1, 12).buffer])
    written.finish()
    [file] = (tmp_path / "store").rglob("*.parquet")
    with pytest.raises(CorruptionError, match="it is not that of a stream"):
        list(read_ordered(RunReader(io.BytesIO(file.read_bytes()), "run"), StreamRange(2, 1, 90, 3, 9), "run"))
