"""A file of a run that was opened once and is read for as long as its reader exists.

pyarrow keeps what the opening has read: the places of the columns in the file, and their encodings. No checksum
protects them; only our description has one. So a file that was damaged when it was opened may be intact when it is
read, and a reader that goes on with what it has would call it damaged for as long as it exists.

| between the opening and a read of a row group | effect |
| --- | --- |
| nothing | the row group is read, and its caller verifies it by the checksum of the description |
| the damaged file is replaced by an intact copy | the read finds damage; the file is opened again, and read again |
| the intact file is damaged, shortened, or lost | the same; the second read, or the opening, raises CorruptionError |
| it is replaced by the file of another run | the same, because the checksums stay those of the description that was \
checked |
| it is damaged and replaced by an intact copy again | nothing: the read sees an intact file |
| the store does not answer in the second opening | UnavailableError; the next read begins with what was kept |

So an error is about the file as it was during the call that raises it, and what was kept is never the reason for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from viewstamp.errors import CorruptionError

__all__ = ["OpenedFile"]

FileT = TypeVar("FileT")
FooterT = TypeVar("FooterT")
ResultT = TypeVar("ResultT")


class OpenedFile(Generic[FileT, FooterT]):
    """An open file, and the description that it had when it was opened first, ``footer``. For one thread."""

    def __init__(self, open_file: Callable[[], tuple[FileT, FooterT]]) -> None:
        """Open a file by ``open_file``, which reads all of its description. Raises as that."""
        self._open = open_file
        self._file, self.footer = open_file()

    def read(self, work: Callable[[FileT], ResultT]) -> ResultT:
        """Return what ``work`` reads; if it finds damage, open the file again and let it read once more.

        ``work`` verifies what it reads by the checksums of ``footer``. Raises as ``work`` and the opening.
        """
        try:
            return work(self._file)
        except CorruptionError:
            self._file, _ = self._open()
        return work(self._file)
