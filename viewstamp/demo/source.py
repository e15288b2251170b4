"""The lines that a demo appends: the flights, or a file of the user's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from viewstamp.errors import RequestError, StorageError
from viewstamp.terminal.show import Show

__all__ = ["Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The lines to append."""

    path: str
    topic: str
    lines: int
    bytes: int

    @classmethod
    def prepare(cls, directory: str, file: Path | None, show: Show) -> Source:
        """Count the lines of ``file``, or write the flights into a file of their own first."""
        from viewstamp.demo.flights import FLIGHTS, check_installed, flights

        if file is None:
            check_installed()
            show.phase(f"reading {FLIGHTS:,} flights")
            path = os.path.join(directory, "flights.jsonl")
            try:
                with open(path, "wb") as stream:
                    stream.writelines(line + b"\n" for line in flights())
            except OSError as error:
                raise StorageError(
                    f"cannot write {path}: {error.strerror}",
                    remedy="name a directory with --dir that this user may write, on a disk with 1 GB of free space",
                ) from error
        else:
            path = os.path.abspath(file)
        from viewstamp.demo.proof import lines_of

        count = sum(1 for _ in lines_of(path))
        if not count:
            raise RequestError(f"{path} is empty: there is nothing to append", remedy="name a file with lines in it")
        topic = "flights" if file is None else "lines"
        return cls(path=path, topic=topic, lines=count, bytes=os.path.getsize(path))
