"""A quiet Spark session on this machine, for demonstrations, tests and the offline replay."""

from __future__ import annotations

import atexit
import contextlib
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from viewstamp.spark.installed import check_installed
from viewstamp.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_running", "register", "session"]

_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(name: str = "viewstamp", *, cores: int = 2, **conf: str) -> SparkSession:
    """Return a session of Spark on this machine, in which ``format("viewstamp")`` is registered.

    It listens only on the loopback address, shows no user interface, logs only errors, and shows times in UTC. If there
    is a session already, it is returned, with its settings changed as far as Spark can.

    Args:
      name: the name of the application.
      cores: how many tasks run at once, and the number of partitions of a shuffle.
      conf: settings of Spark that override these: ``**{"spark.driver.memory": "4g"}``.

    Raises:
      ConfigError: Spark is not installed or older than 4.2, or no Java can be found (:func:`ensure_java`).
    """
    check_installed()
    ensure_java()
    # Otherwise Spark warns about a host name that resolves to the loopback address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    settings = {
        **_LOCAL,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_logging().as_uri()}",
        "spark.sql.shuffle.partitions": str(cores),
        **conf,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_running() -> bool:
    """Return whether this process has a session already, which :func:`session` would return.

    Raises:
      ConfigError: Spark is not installed, or older than 4.2.
    """
    check_installed()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def register(spark: SparkSession) -> None:
    """Register ``format("viewstamp")`` and ``format("viewstamp-wal")`` in a session.

    Spark finds them without this call, by importing every module named ``pyspark_*`` that is installed. It finds none
    if one of those modules cannot be imported, and none that came with ``--py-files``. Call this then.

    Raises:
      ConfigError: Spark is not installed, or older than 4.2.
    """
    check_installed()
    from viewstamp.spark.data_source import ViewstampDataSource
    from viewstamp.spark.wal_source import ViewstampWalDataSource

    _add_archive(spark)
    spark.dataSource.register(ViewstampDataSource)
    spark.dataSource.register(ViewstampWalDataSource)


def _add_archive(spark: SparkSession) -> None:
    """Make the driver's planning processes find this package if it was imported from a zip file (``--py-files``).

    The process that plans a streaming source does not find files that came with ``--py-files``, because Spark starts it
    with a job directory that does not exist. But it gets the environment that is registered with the source, so the
    archive is added to the Python path there. Executors get the same variable; there the path does not exist, and
    Python ignores it.
    """
    archive = Path(__file__).parents[2]
    if not archive.is_file():
        return
    environment = spark.sparkContext.environment
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(archive) not in paths:
        environment["PYTHONPATH"] = os.pathsep.join([*paths, str(archive)])


def _logging() -> Path:
    """Return the path of the logging settings, which exists until this process ends.

    If this package was imported from a zip file it is that of a temporary copy, because Java reads files only.
    """
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(resources.as_file(resources.files("viewstamp.spark") / "log4j2.properties"))
