"""The directory of a demo. It must be empty or an earlier demo's, and only the demo's files are deleted from it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, Self

from viewstamp.config.create import node_file
from viewstamp.errors import ConfigError
from viewstamp.host.private import make_private_directory

__all__ = ["ARCHIVE_PLOT", "PLOT", "DemoDirectory", "adopt"]

MARKER: Final = "demo.json"
PLOT: Final = "demo-spark.png"
"""The picture of a demo. It stays when the demo ends, and a later demo accepts it in its directory."""
ARCHIVE_PLOT: Final = "demo-archive.png"
"""That of the archive demo."""


class DemoDirectory:
    """A directory that a demo uses."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    @contextmanager
    def taken(cls, path: str) -> Iterator[Self]:
        """Take an empty directory, or one of an interrupted demo, but never one with other data.

        It may contain the picture of an earlier demo, which is kept.

        Raises:
          ConfigError: the directory has other files, or another demo uses it.
        """
        marker = os.path.join(path, MARKER)
        make_private_directory(path)
        if set(os.listdir(path)) - {PLOT, ARCHIVE_PLOT} and not os.path.exists(marker):
            raise ConfigError(
                f"{path} is not empty, and a demo needs an empty directory",
                remedy="name another directory with --dir, or delete this one if you do not need its files",
            )
        with open(marker, "a+", encoding="utf-8") as stream:
            _lock(stream, path)
            _kill_left_behind(path)
            _remove(path, but=MARKER)
            stream.write(json.dumps({"process": os.getpid()}) + "\n")
            stream.flush()
            try:
                yield cls(path)
            except BaseException:
                if not os.path.exists(node_file(path, "n1")):
                    _remove(path)  # It failed before there was any data to inspect.
                raise

    def finish(self, *, keep: bool) -> None:
        """Delete the demo's files; or with ``keep`` keep them, and no later demo deletes them."""
        if keep:
            os.remove(os.path.join(self._path, MARKER))
        else:
            _remove(self._path)


def adopt(path: str) -> None:
    """Keep the files of an interrupted demo, so that no later demo deletes them.

    Raises:
      ConfigError: a demo is running there.
    """
    marker = os.path.join(path, MARKER)
    with suppress(FileNotFoundError), open(marker, "rb") as stream:
        _lock(stream, path)
        os.remove(marker)


def _lock(stream: IO[Any], path: str) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(f"a demo is running in {path}", remedy="wait until it ends, or use --dir") from error


def _kill_left_behind(path: str) -> None:
    from viewstamp.local.cluster import LocalCluster

    with suppress(ConfigError):
        for node in LocalCluster.open(path).nodes.values():
            asyncio.run(node.kill())


def _remove(path: str, *, but: str = "") -> None:
    """Delete the files of a demo, and no others; also the directory if it is empty then."""
    for name in os.listdir(path):
        full = os.path.join(path, name)
        if name != but and re.fullmatch(
            r"n[0-9]+(\.toml(\.new|\.removed)?)?|cluster\.lock|(flights|lines)\.jsonl|spark|archive|demo\.json", name
        ):
            if os.path.isdir(full):
                shutil.rmtree(full)
            else:
                os.remove(full)
    with suppress(OSError):
        os.rmdir(path)
