"""A target behind an fsspec URL, for example ``s3://bucket/path``; needs the extra ``viewstamp[backup]``.

The file system comes from a package that the user installs (s3fs for S3, gcsfs, adlfs, sshfs), and so do credentials
and endpoint: from that package's environment variables and files. Every call has a time limit, and is repeated a
bounded number of times, because a store may go away, or throttle; ``host/attempts.py`` does this.

Stores that write an object in one step (S3 and others, memory) get it under its final name. Others get it under a
temporary name, and a rename follows.

Two processes that write to one target are kept apart by the object ``lease.json``: it is refreshed at least every 60 s
while a backup runs, and may be taken over after 600 s without that. So a killed backup blocks the next one for at most
10 minutes.
"""

from __future__ import annotations

import errno
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from viewstamp.errors import ConfigError, DirectoryInUseError, StorageError, StorageFullError, UnavailableError
from viewstamp.host.attempts import Attempts

__all__ = ["FsspecStore"]

ResultT = TypeVar("ResultT")

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.5
_TIMEOUT_SECONDS: Final = 60.0
_LEASE: Final = "lease.json"
_REFRESH_SECONDS: Final = 60.0
_TAKE_OVER_SECONDS: Final = 600.0
_SETTLE_SECONDS: Final = 1.0
"""Pause after a claim, so that of two processes that found no lease at the same time only the later one goes on."""
_ATOMIC: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "memory", "oci"})
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FsspecStore:
    """Objects below an fsspec URL; see the module's docstring, and :class:`BackupStore` for the calls."""

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        timeout: float = _TIMEOUT_SECONDS,
        attempts: int = _ATTEMPTS,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        """Open the file system of ``url``.

        Args:
          url: where the objects are.
          options: arguments of the file system, for example ``endpoint_url``; None = from its environment.
          timeout: seconds for one attempt of one call.
          attempts: how often a call is attempted.
          pause: seconds before the second attempt; doubled before each further one.

        Raises:
          ConfigError: the package for this kind of URL is not installed, or the URL is wrong.
        """
        self.where = url.rstrip("/")
        self._attempts = Attempts(
            self.where,
            remedy="run it again when the store answers; the earlier backups are unchanged, and the objects that were"
            " sent are used",
            timeout=timeout,
            attempts=attempts,
            pause=pause,
        )
        self._token = ""
        self._refreshed = 0.0
        try:
            import fsspec
        except ImportError as error:
            raise ConfigError(
                f"{url} needs fsspec, which is not installed", remedy="install it: pip install 'viewstamp[backup]'"
            ) from error
        try:
            found = fsspec.core.url_to_fs(url, **(options or {}))
        except (ImportError, ValueError, TypeError, OSError) as error:
            raise ConfigError(
                f"{url} cannot be opened: {error}",
                remedy="install the fsspec package of this kind of store (s3fs for s3://), and check the URL",
            ) from error
        self._fs: Any = found[0]
        self._root: str = found[1].rstrip("/")
        protocols = self._fs.protocol
        self._is_atomic = not _ATOMIC.isdisjoint([protocols] if isinstance(protocols, str) else protocols)

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each object in a folder; as :class:`BackupStore`."""
        path = f"{self._root}/{folder.rstrip('/')}"

        def work() -> dict[str, int]:
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(path, detail=True)
            except FileNotFoundError:
                return {}
            names = {str(each["name"]).rstrip("/").rpartition("/")[2]: each for each in found}
            return {
                f"{folder}{name}": int(each["size"] or 0)
                for name, each in sorted(names.items())
                if each["type"] == "file" and not name.endswith(".temporary")
            }

        return self._call(f"list {folder}", work)

    def read(self, name: str) -> bytes:
        """Return an object; as :class:`BackupStore`."""
        return bytes(self._call(f"read {name}", lambda: self._fs.cat_file(f"{self._root}/{name}")))

    def write(self, name: str, data: bytes) -> None:
        """Store an object; as :class:`BackupStore`."""
        self._refresh()
        self._put(name, data)

    def remove(self, name: str) -> None:
        """Remove an object; as :class:`BackupStore`."""

        def work() -> None:
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._root}/{name}")

        self._refresh()
        self._call(f"remove {name}", work)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the lease of the target; as :class:`BackupStore`."""
        lease = self._lease()
        if lease is not None:
            age = time.time() - lease["refreshed"]
            if age < _TAKE_OVER_SECONDS:
                raise DirectoryInUseError(
                    f"{lease.get('holder')} writes to {self.where}, as of {max(0.0, age):.0f} s ago",
                    remedy=f"wait for it; if it does not run any more, its claim ends after {_TAKE_OVER_SECONDS:.0f} s,"
                    f" or remove {self.where}/{_LEASE}",
                )
        self._token = secrets.token_hex(16)
        self._write_lease()
        try:
            time.sleep(_SETTLE_SECONDS)
            self.check_held()
            yield
        finally:
            with suppress(StorageError, UnavailableError):
                if (self._lease() or {}).get("token") == self._token:
                    self.remove(_LEASE)
            self._token = ""

    def check_held(self) -> None:
        """Check that the lease is still this process's; as :class:`BackupStore`."""
        lease = self._lease()
        if lease is None or lease.get("token") != self._token:
            raise UnavailableError(
                f"another process has taken over {self.where}: {(lease or {}).get('holder', 'its lease is gone')}",
                remedy="nothing of the earlier backups was changed; run it again when the other process has ended",
            )

    def _lease(self) -> dict[str, Any] | None:
        try:
            lease = json.loads(self.read(_LEASE))
        except (FileNotFoundError, ValueError):
            return None
        # A lease that was not written by this code holds nothing.
        return lease if isinstance(lease, dict) and isinstance(lease.get("refreshed"), float) else None

    def _write_lease(self) -> None:
        holder = f"process {threading.get_native_id()} on {socket.gethostname()}"
        lease = {"token": self._token, "holder": holder, "refreshed": time.time()}
        self._put(_LEASE, json.dumps(lease).encode())
        self._refreshed = time.monotonic()

    def _refresh(self) -> None:
        if self._token and time.monotonic() - self._refreshed > _REFRESH_SECONDS:
            self.check_held()
            self._write_lease()

    def _put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"

        def work() -> None:
            if self._is_atomic:
                self._fs.pipe_file(path, data)
                return
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(f"{path}.temporary", data)
            self._fs.mv(f"{path}.temporary", path)

        self._call(f"write {name}", work)

    def _call(self, action: str, work: Callable[[], ResultT]) -> ResultT:
        """Attempt a call, with a time limit each time."""
        return self._attempts.call(action, work, self._judge)

    def _judge(self, action: str, error: Exception) -> Exception | None:
        """Return the error for a refusal that another attempt does not change, as ``Attempts`` needs it."""
        if isinstance(error, FileNotFoundError):
            return error
        if not isinstance(error, OSError):  # Packages behind fsspec have error classes of their own.
            return StorageError(
                f"{self.where} refuses to {action}: {type(error).__name__}: {error}",
                remedy="check the credentials, the rights and the URL; the earlier backups are unchanged",
            )
        if error.errno in _FULL:
            return StorageFullError(
                f"{self.where} is full: it cannot {action}",
                remedy="free space there, or remove old backups with `viewstamp backup prune`, and run it again",
            )
        if isinstance(error, PermissionError) or error.errno in _REFUSED:
            return StorageError(
                f"{self.where} refuses to {action}: {error}",
                remedy="give these credentials the right to list, read, write and delete there; the earlier backups are"
                " unchanged",
            )
        return None  # TimeoutError is an OSError, too.
