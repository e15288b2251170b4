"""Spark on this machine, without noise: what demonstrations, tests and the offline replay run on."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from viewstamp.errors import ConfigError
from viewstamp.spark.java import ensure_java
from viewstamp.spark.remedies import remedies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_running", "register", "session"]

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(name: str = "viewstamp", *, cores: int = 2, **conf: str) -> SparkSession:
    """Return a session of Spark on this machine, in which ``format("viewstamp")`` is registered.

    Listens on no address that other machines reach, shows no user interface, logs errors alone, shows times in UTC.
    Where there is a session already, that one is returned, as far as Spark can with its settings changed.

    Args:
      name: of the application.
      cores: how many tasks run at once, and into how many partitions a shuffle goes.
      conf: settings of Spark, which go before these: ``**{"spark.driver.memory": "4g"}``.

    Raises:
      ConfigError: Spark is not installed, or no Java can be found (:func:`ensure_java`).
    """
    _check_installed()
    ensure_java()
    # Else Spark warns of a host name that means this machine alone.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(f"local[{cores}]")
    for key, value in {**_LOCAL, "spark.sql.shuffle.partitions": str(cores), **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def is_running() -> bool:
    """Say whether this process has a session already, which :func:`session` would return.

    Raises:
      ConfigError: Spark is not installed.
    """
    _check_installed()
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def register(spark: SparkSession) -> None:
    """Make ``format("viewstamp")`` and ``format("viewstamp-wal")`` known to a session.

    Spark finds it without, by importing every module named ``pyspark_*``; and finds none of them when one of those
    cannot be imported. Then this is the way.
    """
    from viewstamp.spark.data_source import ViewstampDataSource
    from viewstamp.spark.wal_source import ViewstampWalDataSource

    spark.dataSource.register(ViewstampDataSource)
    spark.dataSource.register(ViewstampWalDataSource)


def _check_installed() -> None:
    missing = [name for name in ("pandas", "pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
    if missing:
        with remedies():
            raise ConfigError(f"not installed here: {', '.join(missing)}", remedy="pip install 'viewstamp[spark]'")
