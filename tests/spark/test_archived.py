"""Both sources with an archive: archived positions come from the store, the others from the nodes, each once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import LessThan
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.archive.s3_server import running_proxy, running_server
from tests.spark.cluster import RunningCluster, running_cluster
from tests.spark.queries import run_to_end
from viewstamp.archive.committed_runs import RunFile
from viewstamp.archive.s3_store import S3Objects
from viewstamp.client import Client
from viewstamp.errors import ConfigError, CorruptionError, TrimmedError
from viewstamp.host.object_url import ObjectUrl
from viewstamp.spark import archived
from viewstamp.spark.archived import RunRange, divide
from viewstamp.spark.data_source import ViewstampDataSource
from viewstamp.spark.options import SourceOptions
from viewstamp.spark.records import spark_schema
from viewstamp.spark.source import BatchReader, FilteringBatchReader
from viewstamp.spark.stream_source import StreamReader
from viewstamp.spark.topic_range import TopicRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="store")
def _store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module", name="archiving")
def _archiving(store: Path) -> Iterator[RunningCluster]:
    """One node with an archive in a directory."""
    with running_cluster(nodes=1, settings={"archive.directory": str(store)}) as cluster:
        yield cluster


_numbers = itertools.count(1)


@pytest.fixture(name="orders")
def _orders(archiving: RunningCluster) -> str:
    """A topic with three runs of ten records each, and five records that are not archived."""
    topic = f"orders-{next(_numbers)}"

    async def fill(client: Client) -> None:
        await client.create_topic(topic)
        for run in range(3):
            await client.append_many(
                topic,
                [b"%d.%d" % (run, number) for number in range(10)],
                keys=[b"k", None] * 5,
                headers=[None, {"a": b"1", "b": b""}] * 5,
            )
            await client.archive_topic(topic)
        await client.append_many(topic, [b"not archived"] * 5)

    archiving.run(fill)
    return topic


def reader(cluster: RunningCluster, topic: str, archive: object, **options: object) -> BatchReader:
    given = {"cluster": cluster.addresses, "topic": topic, "archive": str(archive)}
    given |= {name: str(value) for name, value in options.items()}
    return BatchReader(SourceOptions.parse(given, streaming=False))


def stream(cluster: RunningCluster, topic: str, archive: object, **options: object) -> StreamReader:
    given = {"cluster": cluster.addresses, "topic": topic, "archive": str(archive)}
    given |= {name: str(value) for name, value in options.items()}
    return StreamReader(SourceOptions.parse(given, streaming=True))


def rows(found: BatchReader | StreamReader, parts: list[TopicRange]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in found.read(part) for row in batch.to_pylist()]


def places(found: BatchReader) -> list[int]:
    return [row["position"] for row in rows(found, found.partitions())]


def files(store: Path) -> list[Path]:
    return sorted(store.glob("*/*.parquet"))


def test_spark_reads_archived_records_and_the_others_as_one_table(
    spark: SparkSession, archiving: RunningCluster, store: Path, orders: str
) -> None:
    options = {"cluster": archiving.addresses, "topic": orders}
    plain = spark.read.format("viewstamp").options(**options).load().orderBy("position")
    archived = spark.read.format("viewstamp").options(**options, archive=str(store)).load().orderBy("position")
    assert archived.schema == plain.schema == spark_schema()
    assert archived.collect() == plain.collect()
    assert archived.count() == 35
    narrow = spark.read.format("viewstamp").options(**options, archive=str(store), columns="value,position").load()
    assert narrow.schema == spark_schema(("value", "position"))
    assert {tuple(row) for row in narrow.collect()} == {(row.value, row.position) for row in plain.collect()}


def test_archived_positions_are_read_from_the_store_alone(
    archiving: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reader(archiving, orders, store)
    parts = found.partitions()
    kinds = [(type(part), part.start, part.end) for part in parts]
    assert kinds == [(RunRange, 1, 11), (RunRange, 11, 21), (RunRange, 21, 31), (TopicRange, 31, 36)]

    def unreachable(*_: object) -> None:
        raise AssertionError("a node was asked")

    monkeypatch.setattr("viewstamp.spark.archived.blocking_client", unreachable)
    monkeypatch.setattr("viewstamp.spark.source.blocking_client", unreachable)
    assert [row["position"] for row in rows(found, parts[:3])] == list(range(1, 31))


@pytest.mark.parametrize(
    ("start", "end"), [("earliest", "latest"), (5, 26), (11, 21), (31, 36), (30, 32), (12, 13), (36, 36), (1, 1)]
)
def test_each_position_of_a_query_is_read_once(
    archiving: RunningCluster, store: Path, orders: str, start: object, end: object
) -> None:
    found = reader(archiving, orders, store, startingPosition=start, endingPosition=end)
    first, last = (1 if start == "earliest" else start), (36 if end == "latest" else end)
    assert places(found) == list(range(first, last))  # type: ignore[call-overload]


def test_small_partitions_have_each_position_once(archiving: RunningCluster, store: Path, orders: str) -> None:
    found = reader(archiving, orders, store, maxRecordsPerPartition=3)
    assert max(part.end - part.start for part in found.partitions()) <= 3
    assert places(found) == list(range(1, 36))
    found = reader(archiving, orders, store, minPartitions=20)
    assert len(found.partitions()) >= 20
    assert places(found) == list(range(1, 36))


def test_long_runs_are_cut_between_row_groups(archiving: RunningCluster, store: Path) -> None:
    async def fill(client: Client) -> None:
        await client.create_topic("long")
        for _ in range(100):
            await client.append_many("long", [bytes(1000)] * 500)
        await client.archive_topic("long")

    archiving.run(fill)
    found = reader(archiving, "long", store, columns="position")
    parts = found.partitions()
    assert len(parts) >= 3
    assert all(isinstance(part, RunRange) for part in parts)
    assert [row["position"] for row in rows(found, parts)] == list(range(1, 50_001))


def test_records_that_are_archived_after_the_plan_are_read_once(
    archiving: RunningCluster, store: Path, orders: str
) -> None:
    found = reader(archiving, orders, store)
    parts = found.partitions()

    async def archive(client: Client) -> None:
        await client.archive_topic(orders)
        await client.append(orders, b"later")

    archiving.run(archive)
    assert [row["position"] for row in rows(found, parts)] == list(range(1, 36))
    assert places(reader(archiving, orders, store)) == list(range(1, 37))


def test_a_run_that_was_dropped_after_the_plan_is_an_error_with_its_name(
    archiving: RunningCluster, store: Path, orders: str
) -> None:
    found, lenient = (reader(archiving, orders, store, failOnDataLoss=each) for each in ("true", "false"))
    parts = found.partitions()
    before = files(store)

    async def drop(client: Client) -> None:
        await client.trim_topic(orders, 15)
        await client.archive_topic(orders)

    archiving.run(drop)
    assert len(files(store)) == len(before), "one file is removed, and one is added"
    with pytest.raises(TrimmedError, match=f"position 1 of topic {orders} is to be read, but the first .* is 15"):
        rows(found, parts[:1])
    assert rows(lenient, parts[:1]) == []
    assert [row["position"] for row in rows(found, parts[1:])] == list(range(11, 36)), "this run is still there"


def test_a_file_that_is_lost_changed_or_replaced_is_an_error(
    archiving: RunningCluster, store: Path, orders: str
) -> None:
    found = reader(archiving, orders, store)
    parts = found.partitions()
    assert isinstance(parts[0], RunRange)
    [file] = store.glob(f"*/{parts[0].file.run:020d}.parquet")
    [other] = store.glob(f"*/{parts[1].file.run:020d}.parquet")  # type: ignore[attr-defined]
    data = file.read_bytes()
    changed = bytearray(data)
    for at in range(4, len(data) // 2):
        changed[at] ^= 1
    for damaged in (None, data[:-10], bytes(changed), other.read_bytes()):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=file.name):
            rows(found, parts[:1])
    file.write_bytes(data)
    assert len(rows(found, parts[:1])) == 10
    missing = reader(archiving, orders, store / "missing")
    with pytest.raises(CorruptionError, match=r"archive at .*missing is away, or is another one"):
        rows(missing, missing.partitions()[:1])


def test_a_bucket_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto.server", reason="moto is not installed")
    url = "s3://bucket/archive"
    with running_server() as server, running_proxy(server) as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL_S3": proxy.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        S3Objects(ObjectUrl("bucket", ""))._call("create the bucket", "create_bucket", Bucket="bucket")
        with running_cluster(nodes=1, settings={"archive.url": url}) as cluster:

            async def fill(client: Client) -> None:
                await client.create_topic("orders")
                await client.append_many("orders", [b"x"] * 100)
                await client.archive_topic("orders", 61)

            cluster.run(fill)
            found = reader(cluster, "orders", url)
            assert [type(part) for part in found.partitions()] == [RunRange, TopicRange]
            assert places(found) == list(range(1, 101))


def test_ranges_are_divided_without_gaps_and_overlaps() -> None:
    dice = random.Random(1)
    for _ in range(2000):
        ends = sorted(dice.sample(range(1, 40), dice.randint(1, 8)))
        runs = [
            RunRange("t", first, end, RunFile(number, "c", 1, ""))
            for number, (first, end) in enumerate(itertools.pairwise(ends))
            if dice.random() < 0.8
        ]
        start = dice.randint(1, 40)
        part = TopicRange("t", start, dice.randint(start, 41))
        archived, rest = divide(part, runs)
        found = sorted((each.start, each.end) for each in [*archived, *rest])
        assert [at for first, end in found for at in range(first, end)] == list(range(part.start, part.end))
        assert all(first < end for first, end in found)
        held = {at for run in runs for at in range(run.start, run.end)}
        assert {at for each in archived for at in range(each.start, each.end)} == held & {*range(part.start, part.end)}


@pytest.mark.parametrize("value", ["relative", "https://host/x", "s3://user:password@bucket"])
def test_a_wrong_place_is_refused_without_repeating_a_secret(value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SourceOptions.parse({"cluster": "h:1", "topic": "t", "archive": value}, streaming=False)
    assert "password" not in str(raised.value) + raised.value.remedy


# Streams.


def test_micro_batches_read_runs_and_then_the_log(
    archiving: RunningCluster, store: Path, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each position is in one of them. A restart has the same rows, whatever was archived meanwhile."""
    asked = []
    original = archived.committed_runs
    monkeypatch.setattr(archived, "committed_runs", lambda *given: asked.append(given[1]) or original(*given))
    source, at, limit = stream(archiving, orders, store), {"v": 1, orders: 5}, ReadMaxRows(9)
    planned, kinds = [], []
    while (end := source.latestOffset(at, limit)) != at:
        parts = source.partitions(at, end)
        kinds.append([(type(part), part.start, part.end) for part in parts])
        planned.append((at, end, rows(source, parts)))
        at = end
    assert kinds == [
        [(RunRange, 5, 11), (RunRange, 11, 14)],
        [(RunRange, 14, 21), (RunRange, 21, 23)],
        [(RunRange, 23, 31), (TopicRange, 31, 32)],
        [(TopicRange, 32, 36)],
    ]
    assert asked == [[orders]] * 3, "behind the archived end the catalogue is not needed"
    assert [row["position"] for _, _, found in planned for row in found] == list(range(5, 36))
    archiving.run(lambda client: client.archive_topic(orders))
    restarted = stream(archiving, orders, store)
    for start, end, found in planned:
        assert rows(restarted, restarted.partitions(start, end)) == found
    assert rows(restarted, restarted.partitions(*planned[3][:2])) == planned[3][2]
    assert [type(part) for part in restarted.partitions(*planned[3][:2])] == [RunRange]


def test_a_micro_batch_whose_records_were_deleted_is_an_error(
    archiving: RunningCluster, store: Path, orders: str
) -> None:
    strict, lenient = (stream(archiving, orders, store, failOnDataLoss=each) for each in ("true", "false"))
    start, end = {"v": 1, orders: 5}, {"v": 1, orders: 25}
    parts, lenient_parts = strict.partitions(start, end), lenient.partitions(start, end)
    archiving.run(lambda client: client.trim_topic(orders, 21))
    archiving.run(lambda client: client.archive_topic(orders))
    message = f"position 5 of topic {orders} is to be read, but the first .* is 21"
    for read in (lambda: rows(strict, parts), lambda: strict.partitions(start, end)):
        with pytest.raises(TrimmedError, match=message):
            read()
    assert [row["position"] for row in rows(lenient, lenient_parts)] == [21, 22, 23, 24]
    assert [row["position"] for row in rows(lenient, lenient.partitions(start, end))] == [21, 22, 23, 24]


def test_a_query_that_fails_within_the_archived_part_gives_each_row_once(
    spark: SparkSession, archiving: RunningCluster, store: Path, orders: str, tmp_path: Path
) -> None:
    """Through Spark: its second batch, with records of two runs, fails after its rows were handled."""
    batches: dict[int, list[int]] = {}
    runs = []

    def handle(found: DataFrame, batch: int) -> None:
        places = sorted(row.position for row in found.collect())
        assert batches.setdefault(batch, places) == places, "a batch that is run again has the same rows"
        runs.append(batch)
        if runs == [0, 1]:
            raise RuntimeError("as if the driver had died")

    def start() -> None:
        source = spark.readStream.format("viewstamp").options(cluster=archiving.addresses, topic=orders)
        loaded = source.options(archive=str(store), maxRecordsPerTrigger="14").load().select("position")
        writer: Any = loaded.writeStream.foreachBatch(handle).option("checkpointLocation", str(tmp_path))
        run_to_end(writer.trigger(availableNow=True).start)

    with pytest.raises(StreamingQueryException, match="as if the driver had died"):
        start()
    archiving.run(lambda client: client.archive_topic(orders))
    start()
    assert runs == [0, 1, 1, 2]
    assert [place for batch in sorted(batches) for place in batches[batch]] == list(range(1, 36))


SCHEMA = "id: int64, name: string?"
WIDER = "id: int64, name: string?, paid: float64?"


@pytest.fixture(name="payments")
def _payments(archiving: RunningCluster) -> str:
    """A topic of 35 rows: three runs of ten, the last one with a wider schema, and five that are not archived."""
    topic = f"payments-{next(_numbers)}"

    async def fill(client: Client) -> None:
        await client.create_topic(topic)
        await client.set_schema(topic, SCHEMA)
        for run in range(3):
            if run == 2:
                await client.set_schema(topic, WIDER)
            await client.append_rows(topic, [payment(10 * run + number, wide=run == 2) for number in range(10)])
            await client.archive_topic(topic)
        await client.append_rows(topic, [payment(30 + number, wide=True) for number in range(5)])

    archiving.run(fill)
    return topic


def payment(number: int, *, wide: bool) -> dict[str, Any]:
    return {"id": number, "name": f"n{number % 3}" if number % 2 else None, **({"paid": number / 4} if wide else {})}


def typed(cluster: RunningCluster, topic: str, **options: object) -> BatchReader:
    given = {"cluster": cluster.addresses, "topic": topic, "rows": "true"}
    found = ViewstampDataSource(given | {name: str(value) for name, value in options.items()})
    reader = found.reader(found.schema())
    assert isinstance(reader, BatchReader)
    return reader


def read_rows(found: BatchReader) -> list[dict[str, Any]]:
    return rows(found, found.partitions())


def damage(file: Path, column: str) -> None:
    """Change the bytes of a column of a run."""
    from pyarrow.parquet import ParquetFile

    group = ParquetFile(file).metadata.row_group(0)
    [found] = [each for at in range(group.num_columns) if (each := group.column(at)).path_in_schema == column]
    content = bytearray(file.read_bytes())
    start = found.dictionary_page_offset or found.data_page_offset
    for at in range(start, start + found.total_compressed_size):
        content[at] ^= 0xFF
    file.write_bytes(content)


def test_rows_of_runs_are_those_of_the_log(archiving: RunningCluster, store: Path, payments: str) -> None:
    expected = [{"name": None, "paid": None} | payment(number, wide=number >= 20) for number in range(35)]
    assert read_rows(typed(archiving, payments, archive=store)) == expected
    assert read_rows(typed(archiving, payments)) == expected
    options = {"archive": store, "columns": "position,topic,key", "fields": "paid,id", "startingPosition": 5}
    found = read_rows(typed(archiving, payments, **options))
    places = [{"position": number + 1, "topic": payments, "key": None} for number in range(35)]
    fields = [{"paid": each["paid"], "id": each["id"]} for each in expected]
    assert found == [place | each for place, each in zip(places, fields, strict=True)][4:]


def test_columns_and_row_groups_that_a_query_does_not_need_are_not_read(
    archiving: RunningCluster, store: Path, payments: str
) -> None:
    for file, column in zip(files(store)[-3:], ("value", "row.id", "row.id"), strict=True):
        damage(file, column)
    condition = LessThan(("id",), 10)
    narrow = typed(archiving, payments, archive=store, fields="id", pushFilters="true")
    assert isinstance(narrow, FilteringBatchReader)
    assert list(narrow.pushFilters([condition])) == [condition]
    assert [each["id"] for each in read_rows(narrow)] == [*range(10), *range(30, 35)]
    with pytest.raises(CorruptionError, match="is damaged"):
        read_rows(typed(archiving, payments, archive=store, fields="id"))
    values = typed(archiving, payments, archive=store, columns="value", fields="id", pushFilters="true")
    assert isinstance(values, FilteringBatchReader)
    values.pushFilters([condition])
    with pytest.raises(CorruptionError, match="is damaged"):
        read_rows(values)


def test_spark_pushes_conditions_on_fields_to_runs(
    spark: SparkSession, archiving: RunningCluster, store: Path, payments: str
) -> None:
    for file in files(store)[-3:-1]:
        damage(file, "row.name")
    options = {"cluster": archiving.addresses, "topic": payments, "archive": str(store), "rows": "true"}
    frame = spark.read.format("viewstamp").options(**options, fields="name,id", pushFilters="true").load()
    found = frame.where("id > 19 and (name is null or name = 'n0')").collect()
    assert sorted(each.id for each in found) == [20, 21, 22, 24, 26, 27, 28, 30, 32, 33, 34]


def test_fields_that_rows_do_not_have_are_refused(archiving: RunningCluster, payments: str) -> None:
    with pytest.raises(ConfigError, match=f"option fields names nam, which the rows of topic {payments} have not"):
        typed(archiving, payments, fields="id,nam")
    with pytest.raises(ConfigError, match="fields is given without rows"):
        reader(archiving, payments, "/nowhere", fields="id")
