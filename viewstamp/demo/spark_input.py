"""The input of the Spark demo: the flights as a folder of files, each of which becomes one micro-batch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from viewstamp.demo.proof import lines_of
from viewstamp.demo.source import flights
from viewstamp.errors import StorageError

__all__ = ["Input"]

FILES: Final = 20


@dataclass(frozen=True, slots=True)
class Input:
    """A folder of files of lines; ``sizes`` has the number of lines of each, in the order in which Spark reads them."""

    folder: str
    sizes: tuple[int, ...]

    @classmethod
    def write(cls, folder: str) -> Input:
        """Write the flights into ``folder``, in the order of their schedule; a file has two or three weeks.

        Raises:
          ConfigError: the flights are not installed.
          StorageError: the folder cannot be written.
        """
        lines = list(flights())
        size = -(-len(lines) // FILES)
        parts = [lines[start : start + size] for start in range(0, len(lines), size)]
        first = time.time() - len(parts)
        try:
            os.makedirs(folder)
            for number, part in enumerate(parts):
                path = os.path.join(folder, f"{number:02}.jsonl")
                with open(path, "wb") as stream:
                    stream.writelines(line + b"\n" for line in part)
                # Spark reads files in the order of their modification times.
                os.utime(path, (first + number, first + number))
        except OSError as error:
            raise StorageError(
                f"cannot write {folder}: {error.strerror}",
                remedy="name a directory with --dir that this user may write, on a disk with 1 GB of free space",
            ) from error
        return cls(folder, tuple(map(len, parts)))

    @property
    def rows(self) -> int:
        """The number of lines in all files."""
        return sum(self.sizes)

    @property
    def ends(self) -> frozenset[int]:
        """The last positions at which a topic may end: only after whole files."""
        return frozenset(accumulate(self.sizes, initial=0))

    def lines(self) -> Iterator[bytes]:
        """Yield all lines, in the order of the files."""
        for name in sorted(os.listdir(self.folder)):
            yield from lines_of(os.path.join(self.folder, name))
