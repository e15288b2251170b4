"""``benchmarks.spark --floor``: its sources make the rows that are asked for, and its sinks take all that they get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from benchmarks.spark_floor import SINKS, SOURCES, VALUE_BYTES, register, running_peer, stream_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 9001


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running_peer() as (_, port):
        yield port


@pytest.fixture
def floors(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_yields_each_row_once(floors: SparkSession, port: int, name: str) -> None:
    port = port if name == "floor-socket" else 0
    rows = floors.read.format(name).options(rows=_ROWS, tasks=2, port=port).load()
    found = rows.selectExpr("count(*)", "min(length(value))", "max(length(value))").first()
    assert found == (_ROWS, VALUE_BYTES, VALUE_BYTES), "a floor that makes less would look too fast"


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_takes_a_batch(floors: SparkSession, port: int, name: str) -> None:
    values = floors.range(_ROWS, numPartitions=2).selectExpr(f"unhex(repeat('ab', {VALUE_BYTES})) AS value")
    port = port if name == "floor-send" else 0
    values.write.format(name).mode("append").option("port", port).save()  # Fails if the peer received less.


def test_a_stream_writer_sends_what_it_gets(port: int) -> None:
    batches = [pa.record_batch({"value": pa.array([bytes(VALUE_BYTES)] * count)}) for count in (1, 2000)]
    stream_writer(port).write(iter(batches))
