"""An Iceberg table of a topic: each position once, whatever fails between a file and its commit."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("pyiceberg")

import pyiceberg.catalog
import pyiceberg.io.pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update.snapshot import _FastAppendFiles

from tests.archive.runs import fill_runs
from tests.spark.cluster import RunningCluster, running_cluster
from viewstamp.archive.export import Exported, export_topic
from viewstamp.archive.iceberg import NEXT, TableOfTopic, TablePlace
from viewstamp.cli import main
from viewstamp.client import Client
from viewstamp.errors import (
    ConfigError,
    CorruptionError,
    OutcomeUnknownError,
    RequestError,
    StorageError,
    TrimmedError,
    UnavailableError,
    UnknownTopicError,
)

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One node with an archive in a directory."""
    archive = str(tmp_path_factory.mktemp("archive"))
    with running_cluster(nodes=1, settings={"archive.directory": archive}) as cluster:
        yield cluster


@pytest.fixture(name="topic")
def _topic(cluster: RunningCluster) -> str:
    """A topic with 20 archived records, and 5 that are in the log only."""
    topic = f"orders-{next(_numbers)}"

    cluster.run(lambda client: fill_runs(client, topic, 2))
    return topic


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> TablePlace:
    return TablePlace("lake.orders", tmp_path / "lake")


def export(cluster: RunningCluster, topic: str, place: TablePlace, **options: Any) -> Exported:
    return cluster.run(lambda client: export_topic(client, topic, place, entropy=Random(), **options))


def loaded(place: TablePlace) -> Any:
    """Return the table as a program reads it that knows nothing of viewstamp."""
    assert place.directory is not None
    catalog = SqlCatalog("viewstamp", uri=f"sqlite:///{place.directory}/catalog.db")
    try:
        return catalog.load_table(place.name)
    finally:
        catalog.close()


def rows(place: TablePlace) -> list[dict[str, Any]]:
    found = loaded(place).scan().to_arrow().sort_by("position").to_pylist()
    return list(found)


def positions(place: TablePlace) -> list[int]:
    return [row["position"] for row in rows(place)]


def test_the_table_has_the_records_of_runs_and_of_the_log_as_readers_see_them(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    done = export(cluster, topic, place)
    assert (done.first, done.end, done.files, len(done.snapshots)) == (1, 26, 1, 1)
    expected = [
        {
            "position": record.position,
            "term": record.term,
            "index": record.index,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": list((record.headers or {}).items()) or None,
        }
        for record in cluster.read(topic)
    ]
    found = rows(place)
    for row in found:
        time = row["timestamp"]
        row["timestamp"] = int(time.timestamp()) * 1_000_000 + time.microsecond
    assert found == expected


def test_duckdb_reads_the_files_of_the_table(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    duckdb = pytest.importorskip("duckdb")
    export(cluster, topic, place)
    files = [task.file.file_path.removeprefix("file://") for task in loaded(place).scan().plan_files()]
    count, last = duckdb.sql(f"SELECT count(*), max(position) FROM read_parquet({files!r})").fetchall()[0]
    assert (count, last) == (25, 25)


def test_the_fields_of_rows_are_columns_and_follow_the_schema(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    """A topic gets a schema, and then a wider one, between exports. Old files keep their columns."""
    duckdb = pytest.importorskip("duckdb")
    export(cluster, topic, place)

    def append(schema: str, **fields: object) -> None:
        async def append(client: Client) -> None:
            await client.set_schema(topic, schema)
            await client.append_rows(topic, [{"value": 7, **fields}])

        cluster.run(append)

    append("value: int32, name: string?", name="one")
    cluster.append(topic, [b"no row"])
    assert export(cluster, topic, place).end == 28
    assert export(cluster, topic, place).snapshots == ()
    append("value: int64, name: string?, paid: float64?", paid=0.5)
    assert export(cluster, topic, place).first == 28
    found = rows(place)
    assert [each["position"] for each in found] == [*range(1, 29)]
    assert [each["row"] for each in found[:25]] == [None] * 25
    assert found[25]["row"] == {"value": 7, "name": "one", "paid": None}
    assert found[26]["row"] is None
    assert found[27]["row"] == {"value": 7, "name": None, "paid": 0.5}
    assert found[27]["value"] == cluster.values(topic)[-1]
    table = loaded(place)
    assert table.scan(row_filter="row.paid > 0.1").to_arrow().num_rows == 1
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    query = f"SELECT row.name FROM read_parquet({files!r}, union_by_name=true) WHERE row.value = 7 ORDER BY position"
    assert duckdb.sql(query).fetchall() == [("one",), (None,)]


_SPARK = """
import json, sys
from pyspark.sql import SparkSession
jars, directory, table = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.sql.catalog.viewstamp", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.viewstamp.type", "jdbc")
    .config("spark.sql.catalog.viewstamp.uri", f"jdbc:sqlite:{directory}/catalog.db")
    .config("spark.sql.catalog.viewstamp.warehouse", f"file://{directory}")
    .getOrCreate()
)
rows = spark.table("viewstamp." + table).orderBy("position")
print(rows.selectExpr("collect_list(struct(position, cast(value AS string) AS value, row)) AS rows").toJSON().first())
"""


@pytest.mark.skipif("VIEWSTAMP_ICEBERG_JARS" not in os.environ, reason="tests/README.md says how to run it")
def test_spark_reads_the_table_with_icebergs_own_code(
    cluster: RunningCluster, topic: str, place: TablePlace, tmp_path: Path
) -> None:
    export(cluster, topic, place)

    async def append(client: Client) -> None:
        await client.set_schema(topic, "id: int32, name: string?")
        await client.append_rows(topic, [{"id": 7, "name": "Ada"}, {"id": 8}])

    cluster.run(append)
    export(cluster, topic, place)
    program = tmp_path / "read.py"
    program.write_text(_SPARK)
    python = os.environ["VIEWSTAMP_ICEBERG_PYTHON"]
    asked = [python, str(program), os.environ["VIEWSTAMP_ICEBERG_JARS"], str(place.directory), place.name]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])["rows"]
    values = [record.value.decode(errors="replace") for record in cluster.read(topic)]
    assert [row["position"] for row in found] == list(range(1, 28))
    assert [row["value"] for row in found][:25] == values[:25]
    assert [row.get("row") for row in found] == [None] * 25 + [{"id": 7, "name": "Ada"}, {"id": 8}]


def test_records_of_another_export_are_not_added_again_after_the_columns_have_changed(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    table = TableOfTopic(place, cluster_of(cluster), topic, Random())
    assert table.end is None
    export(cluster, topic, place)
    assert table.evolve("id: int64")
    assert table.end == 26
    assert not table.evolve("id: int64")


def test_a_column_of_the_same_name_is_refused(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    from pyiceberg.types import StringType

    export(cluster, topic, place)
    loaded(place).update_schema().add_column("row", StringType()).commit()
    cluster.run(lambda client: client.set_schema(topic, "id: int64"))
    cluster.append(topic, [b"one more"])
    with pytest.raises(RequestError, match=r"has a column row of type string, .*; nothing was added"):
        export(cluster, topic, place)


def cluster_of(cluster: RunningCluster) -> str:
    return str(cluster.run(lambda client: client.status())[0]["cluster_id"])


def test_a_later_export_adds_only_the_new_records(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    assert export(cluster, topic, place, until="archived").end == 21
    assert export(cluster, topic, place, until=23).first == 21
    assert export(cluster, topic, place, until=10).files == 0
    assert export(cluster, topic, place, file_bytes=1, commit_files=1).end == 26
    assert export(cluster, topic, place).snapshots == ()
    cluster.append(topic, [b"one more"])
    assert export(cluster, topic, place).first == 26
    assert positions(place) == [*range(1, 27)]
    # Each batch of the log is a file, and each file a commit: the records of one position are not in two.
    assert [int(each.summary[NEXT]) for each in loaded(place).snapshots()] == [21, 23, 26, 27]


def test_a_topic_without_archived_records_has_no_archived_end(cluster: RunningCluster, place: TablePlace) -> None:
    topic = f"new-{next(_numbers)}"
    cluster.create_topic(topic)
    assert export(cluster, topic, place).files == 0
    with pytest.raises(RequestError, match="no archived records"):
        export(cluster, topic, place, until="archived")


def test_no_table_is_created_for_a_topic_that_does_not_exist(cluster: RunningCluster, place: TablePlace) -> None:
    with pytest.raises(UnknownTopicError):
        export(cluster, "unknown", place)
    assert place.directory is not None
    assert not place.directory.exists()


def test_a_table_of_other_records_is_refused(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    export(cluster, topic, place)
    other = f"other-{next(_numbers)}"
    cluster.create_topic(other)
    with pytest.raises(RequestError, match=f"has topic {topic} of cluster"):
        export(cluster, other, place)
    with pytest.raises(RequestError, match="of cluster another"):
        TableOfTopic(place, "another", topic, Random())
    assert len(rows(place)) == 25


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (TablePlace("orders", Path("lake")), "'orders' is no name of a table"),
        (TablePlace("lake.", Path("lake")), "'lake.' is no name of a table"),
        (TablePlace("lake.orders"), "neither a directory nor"),
        (TablePlace("lake.orders", Path("lake"), "default"), "both a directory and"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(place: TablePlace, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        place.check()


def test_deleted_records_leave_a_gap_only_if_that_is_asked_for(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    export(cluster, topic, place, until=15)
    cluster.run(lambda client: client.trim_topic(topic, 21))
    with pytest.raises(TrimmedError, match="positions 15 to 20") as caught:
        export(cluster, topic, place)
    assert caught.value.first == 21
    done = export(cluster, topic, place, skip_deleted=True)
    assert (done.first, done.skipped) == (21, 6)
    assert positions(place) == [*range(1, 15), *range(21, 26)]


def test_the_first_export_of_a_trimmed_topic_begins_at_the_first_kept_record(
    cluster: RunningCluster, topic: str, place: TablePlace
) -> None:
    cluster.run(lambda client: client.trim_topic(topic, 21))
    assert export(cluster, topic, place).first == 21


def test_a_table_that_is_ahead_of_its_topic_is_refused(cluster: RunningCluster, topic: str, place: TablePlace) -> None:
    export(cluster, topic, place, until=15)
    change_summary(place, "100")
    with pytest.raises(CorruptionError, match=r"positions up to 99, but topic .* ends at 25"):
        export(cluster, topic, place)


def change_summary(place: TablePlace, end: str) -> None:
    """Add an empty snapshot that says another end."""
    loaded(place).append(loaded(place).schema().as_arrow().empty_table(), snapshot_properties={NEXT: end})


class TestFailures:
    """The process dies, or a call fails, at each step of a commit; then the same export runs again."""

    @staticmethod
    def before(owner: Any, name: str) -> Callable[[], AbstractContextManager[object]]:
        return lambda: patch.object(owner, name, side_effect=OSError("the machine stopped"))

    @staticmethod
    def after(owner: Any, name: str) -> Callable[[], AbstractContextManager[object]]:
        original = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> None:
            original(*arguments, **named)
            raise OSError("the machine stopped")

        return lambda: patch.object(owner, name, call)

    STEPS = (
        ("before the table is created", before(SqlCatalog, "create_table"), StorageError, False),
        ("after the table was created", after(SqlCatalog, "create_table"), StorageError, False),
        ("before a file is written", before(pyiceberg.io.pyarrow, "write_file"), StorageError, False),
        ("after a file was written", after(pyiceberg.io.pyarrow, "write_file"), StorageError, False),
        ("before the manifests", before(_FastAppendFiles, "_commit"), StorageError, False),
        ("after the manifests", after(_FastAppendFiles, "_commit"), StorageError, False),
        ("before the catalogue", before(SqlCatalog, "commit_table"), OutcomeUnknownError, False),
        ("before the metadata", before(SqlCatalog, "_write_metadata"), OutcomeUnknownError, True),
    )

    @pytest.mark.parametrize(
        ("step", "error", "is_begun"), [each[1:] for each in STEPS], ids=[each[0] for each in STEPS]
    )
    def test_the_next_export_adds_each_record_once(
        self,
        cluster: RunningCluster,
        topic: str,
        place: TablePlace,
        step: Callable[[], AbstractContextManager[object]],
        error: type[Exception],
        is_begun: bool,
    ) -> None:
        if is_begun:
            export(cluster, topic, place, until=3)
        with step(), pytest.raises(error, match="the machine stopped"):
            export(cluster, topic, place, until=15)
        export(cluster, topic, place)
        assert positions(place) == [*range(1, 26)]

    def test_a_lost_answer_of_the_catalogue_is_looked_up(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        with self.after(SqlCatalog, "commit_table")():
            assert export(cluster, topic, place).end == 26
        assert export(cluster, topic, place).files == 0
        assert positions(place) == [*range(1, 26)]

    def test_an_answer_that_stays_lost_is_an_unknown_outcome_and_the_next_export_knows(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        export(cluster, topic, place, until=3)
        reload = TableOfTopic._reload
        calls = itertools.count()

        def fail_later(self: TableOfTopic) -> Any:
            if next(calls):
                raise OSError("the machine stopped")
            return reload(self)

        with (
            self.after(SqlCatalog, "commit_table")(),
            patch.object(TableOfTopic, "_reload", fail_later),
            pytest.raises(OutcomeUnknownError, match="did not confirm the positions 3 to 25"),
        ):
            export(cluster, topic, place)
        assert export(cluster, topic, place).files == 0
        assert positions(place) == [*range(1, 26)]


class TestRaces:
    """Other programs change the table during an export."""

    @staticmethod
    def meanwhile(work: Callable[[], object]) -> AbstractContextManager[object]:
        """Do something in another program right before the next commit."""
        original = TableOfTopic.commit

        def commit(self: TableOfTopic, *arguments: Any) -> int:
            with patch.object(TableOfTopic, "commit", original):
                work()
            return original(self, *arguments)

        return patch.object(TableOfTopic, "commit", commit)

    @pytest.mark.parametrize("first", [None, 10], ids=["new", "old"])
    def test_of_two_exports_one_wins_and_the_other_adds_nothing(
        self, cluster: RunningCluster, topic: str, place: TablePlace, first: int | None
    ) -> None:
        if first is not None:
            export(cluster, topic, place, until=first)

        def other() -> None:
            assert export(cluster, topic, place).end == 26

        with self.meanwhile(other), pytest.raises(UnavailableError, match="another program changed table"):
            export(cluster, topic, place)
        assert positions(place) == [*range(1, 26)]
        assert export(cluster, topic, place).files == 0
        assert place.directory is not None
        named = {Path(task.file.file_path).name for task in loaded(place).scan().plan_files()}
        assert {each.name for each in place.directory.rglob("*.parquet")} == named

    def test_a_lost_race_is_not_repeated_on_the_snapshot_of_the_winner(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        with (
            patch.object(SqlCatalog, "commit_table", side_effect=CommitFailedException("lost")) as commit,
            pytest.raises(UnavailableError, match="lost"),
        ):
            export(cluster, topic, place)
        assert commit.call_count == 1

    def test_a_compaction_and_the_loss_of_old_snapshots_change_nothing(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        export(cluster, topic, place, until=15)
        exported = loaded(place).current_snapshot().snapshot_id
        loaded(place).overwrite(loaded(place).scan().to_arrow())  # As a compaction: two snapshots of another program.
        assert export(cluster, topic, place, until=18).first == 15
        exported = loaded(place).current_snapshot().snapshot_id
        loaded(place).overwrite(loaded(place).scan().to_arrow())
        loaded(place).maintenance.expire_snapshots().by_id(exported).commit()
        assert export(cluster, topic, place).first == 18
        assert positions(place) == [*range(1, 26)]

    def test_an_expired_snapshot_and_files_that_disagree_are_no_guess(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        export(cluster, topic, place)
        exported = loaded(place).current_snapshot().snapshot_id
        loaded(place).delete("position > 20")
        assert export(cluster, topic, place).files == 0, "rows that somebody deleted do not come back"
        loaded(place).maintenance.expire_snapshots().by_id(exported).commit()
        with pytest.raises(CorruptionError, match="have the end 26, and its files the last position"):
            export(cluster, topic, place)

    def test_a_table_that_was_rolled_back_gets_the_missing_records_again(
        self, cluster: RunningCluster, topic: str, place: TablePlace
    ) -> None:
        export(cluster, topic, place, until=15)
        exported = loaded(place).current_snapshot().snapshot_id
        export(cluster, topic, place)
        loaded(place).manage_snapshots().rollback_to_snapshot(exported).commit()
        assert positions(place) == [*range(1, 15)]
        export(cluster, topic, place)
        assert positions(place) == [*range(1, 26)]


class TestCommand:
    def run(self, cluster: RunningCluster, topic: str, *arguments: str, code: int = 0) -> None:
        command = ["archive", "export", topic, *arguments, "--cluster", cluster.addresses]
        assert main.run(command) == code

    def test_it_says_what_was_added(
        self, cluster: RunningCluster, topic: str, place: TablePlace, capsys: pytest.CaptureFixture[str]
    ) -> None:
        where = ("--table", place.name, "--warehouse", str(place.directory))
        self.run(cluster, topic, *where, "--until", "7", "--output", "json")
        captured = capsys.readouterr()
        shown = json.loads(captured.out)
        assert captured.err == ""
        assert (shown["first_position"], shown["last_position"], shown["records"]) == (1, 7, 7)
        assert (shown["files"], shown["skipped"], len(shown["snapshots"])) == (1, 0, 1)
        assert shown["bytes"] == sum(task.file.file_size_in_bytes for task in loaded(place).scan().plan_files())
        self.run(cluster, topic, *where, "--until", "archived")
        assert "table lake.orders: 13 new records, positions 8 to 20\n" in capsys.readouterr().out
        self.run(cluster, topic, *where, "--until", "archived")
        assert "nothing new, up to position 20" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--table", "lake.orders"), "give --warehouse DIR"),
            (("--table", "orders", "--warehouse", "lake"), "write NAMESPACE.TABLE"),
            (("--table", "lake.orders", "--warehouse", "lake", "--until", "noon"), "'noon' is no position"),
        ],
    )
    def test_options_that_make_no_sense_are_errors(
        self, cluster: RunningCluster, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
    ) -> None:
        self.run(cluster, "orders", *arguments, code=2)
        assert message in capsys.readouterr().err
