"""A demo's directory: taken only where it is empty or an earlier demo's, and left as it was found."""

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

__all__ = ["PLOT", "DemoDirectory", "adopt"]

MARKER: Final = "demo.json"
PLOT: Final = "demo-spark.png"
"""What a demo has to show for itself: it outlives the demo, and is in nobody's way."""


class DemoDirectory:
    """A directory that a demo has taken for itself."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    @contextmanager
    def taken(cls, path: str) -> Iterator[Self]:
        """Take an empty directory, or one that an interrupted demo left behind; never anybody's data.

        An earlier demo's plot may lie there, and goes on lying there.

        Raises:
          ConfigError: something else lies there, or another demo is at work.
        """
        marker = os.path.join(path, MARKER)
        make_private_directory(path)
        if set(os.listdir(path)) - {PLOT} and not os.path.exists(marker):
            raise ConfigError(
                f"{path} is not empty, and a demo starts from nothing",
                remedy="name another directory with --dir, or remove this one if nobody needs what is in it",
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
                    _remove(path)  # It failed before there was anything to look at.
                raise

    def finish(self, *, keep: bool) -> None:
        """Remove what the demo made; with ``keep`` it is the user's from now on, and no later demo removes it."""
        if keep:
            os.remove(os.path.join(self._path, MARKER))
        else:
            _remove(self._path)


def adopt(path: str) -> None:
    """Make what an interrupted demo left behind the user's, whose data no later demo removes.

    Raises:
      ConfigError: a demo is at work there.
    """
    marker = os.path.join(path, MARKER)
    with suppress(FileNotFoundError), open(marker, "rb") as stream:
        _lock(stream, path)
        os.remove(marker)


def _lock(stream: IO[Any], path: str) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(f"a demo is at work in {path}", remedy="wait for it, or use --dir") from error


def _kill_left_behind(path: str) -> None:
    from viewstamp.local.cluster import LocalCluster

    with suppress(ConfigError):
        for node in LocalCluster.open(path).nodes.values():
            asyncio.run(node.kill())


def _remove(path: str, *, but: str = "") -> None:
    """Remove what a demo makes, and nothing else; the directory too where it is empty then."""
    for name in os.listdir(path):
        full = os.path.join(path, name)
        if name != but and re.fullmatch(
            r"n[0-9]+(\.toml(\.new|\.removed)?)?|cluster\.lock|(flights|lines)\.jsonl|spark|demo\.json", name
        ):
            if os.path.isdir(full):
                shutil.rmtree(full)
            else:
                os.remove(full)
    with suppress(OSError):
        os.rmdir(path)
