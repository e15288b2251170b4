"""Adds the remedy of an error to its traceback, because that is all that Spark shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from viewstamp.errors import ViewstampError

__all__ = ["remedies"]


@contextmanager
def remedies() -> Iterator[None]:
    """Add the remedy of an error of viewstamp to its traceback. Nested contexts add it once.

    For every function that Spark calls, because errors of these reach the user as the text of a traceback.
    """
    try:
        yield
    except ViewstampError as error:
        if error.remedy and error.remedy not in getattr(error, "__notes__", ()):
            error.add_note(error.remedy)
        raise
