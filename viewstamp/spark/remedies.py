"""Spark shows of an error what a traceback shows: the remedy has to stand there too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from viewstamp.errors import ViewstampError

__all__ = ["remedies"]


@contextmanager
def remedies() -> Iterator[None]:
    """Add the remedy of an error of ours that passes to what its traceback shows. Within another one it adds nothing.

    For everything that Spark calls: what is raised there reaches the user as the text of a traceback.
    """
    try:
        yield
    except ViewstampError as error:
        if error.remedy and error.remedy not in getattr(error, "__notes__", ()):
            error.add_note(error.remedy)
        raise
