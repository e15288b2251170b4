"""Builds command lines for messages: the program's path, and the options that name a cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

__all__ = ["DEFAULT_DIRECTORY", "cluster_flag", "dir_flag", "program"]

DEFAULT_DIRECTORY: Final = "viewstamp-data"


def program() -> str:
    """Return the command that runs this program again: its name, or its path if the shell would not find it."""
    installed = os.path.join(sys.prefix, "bin", "viewstamp")
    found = shutil.which("viewstamp")
    if not os.path.exists(installed) or (found is not None and os.path.samefile(found, installed)):
        return "viewstamp"
    path = os.path.relpath(installed)
    return shlex.quote(path if not path.startswith(os.pardir) else installed)


def dir_flag(directory: str | os.PathLike[str], default: str) -> str:
    """Return `` --dir DIR`` for a command line; "" for the default directory."""
    path = os.path.relpath(directory)
    if path == default:
        return ""
    return f" --dir {shlex.quote(path if not path.startswith(os.pardir) else os.path.abspath(directory))}"


def cluster_flag(directory: Path | None, cluster: str | None) -> str:
    """Return the option that names this cluster on a command line; "" if none is needed."""
    if directory is not None:
        return dir_flag(directory, "viewstamp-data")
    return f" --cluster {shlex.quote(cluster)}" if cluster else ""
