"""Runs streaming queries of tests to their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["run_to_end"]

SECONDS_MAX = 300
_IS_BUSY = "Python worker failed to connect back"


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query that ends by itself, wait for its end, and return it.

    Spark gives up a Python worker that has not started within ten seconds, which a busy machine may need. Nothing was
    read then, so the query is started again.
    """
    while True:
        query = start()
        try:
            assert query.awaitTermination(SECONDS_MAX), "the query does not end"
        except StreamingQueryException as error:
            if _IS_BUSY not in str(error):
                raise
        else:
            return query
