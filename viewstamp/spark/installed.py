"""Checks that the packages of the extra ``spark`` are installed and new enough."""

from __future__ import annotations

import importlib.util
import re
from typing import Final

from viewstamp.errors import ConfigError
from viewstamp.spark.remedies import remedies

__all__ = ["check_installed"]

_OLDEST: Final = (4, 2)
"""The first version of Spark with read limits for sources in Python. Writers of Arrow batches came with 4.1."""


def check_installed() -> None:
    """Raise an error that names the remedy if Spark is missing, or older than 4.2.

    Without this check an older Spark fails later, with an import error that names a class of Spark.

    Raises:
      ConfigError: a package is missing, or Spark is too old.
    """
    remedy = "pip install 'viewstamp[spark]'"
    with remedies():
        missing = [name for name in ("pandas", "pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"not installed here: {', '.join(missing)}", remedy=remedy)
        from pyspark.version import __version__

        numbers = re.match(r"(\d+)\.(\d+)", __version__)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
            raise ConfigError(
                f"Spark {__version__} is installed here, but viewstamp needs 4.2 or newer",
                remedy=f"{remedy}, on the driver and the executors; a Spark cluster has to run 4.2 or newer, too",
            )
