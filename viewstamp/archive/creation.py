"""An object of the store that is being written: the file for its encoder, and its completion."""

from __future__ import annotations

from viewstamp.archive.store import ObjectCreation
from viewstamp.errors import UnavailableError
from viewstamp.wire.batch import Buffer

__all__ = ["ObjectSink", "finish_object", "name_in_use"]


class ObjectSink:
    """A file for pyarrow that keeps the bytes until they are taken, so that pyarrow never sees errors of the store."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    @property
    def size(self) -> int:
        """The bytes that were written."""
        return self._at

    def flush_into(self, creation: ObjectCreation) -> None:
        """Write the bytes that are kept into an object."""
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            creation.write(piece)

    def write(self, data: Buffer) -> int:
        """Keep bytes."""
        self._pieces.append(bytes(data))
        self._at += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._at

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False


def finish_object(creation: ObjectCreation, where: str, name: str) -> None:
    """Make an object durable that was written. Raises UnavailableError, and as ``ObjectCreation.finish``."""
    try:
        creation.finish()
    except FileNotFoundError as error:
        raise UnavailableError(
            "another leader has removed the object that was being written", remedy="try again"
        ) from error
    except FileExistsError as error:
        raise name_in_use(where, name) from error


def name_in_use(where: str, name: str) -> UnavailableError:
    """Return the error for a name that the store has already; the next attempt has another id.

    For example it has the object of a run whose records a recovery without a majority has lost.
    """
    return UnavailableError(f"{where} has an object {name} already; it was not changed", remedy="try again")
