"""Which release of viewstamp runs."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["release"]


@cache
def release() -> str:
    """Return which release of viewstamp this is; "unknown" where it runs without having been installed."""
    try:
        return version("viewstamp")
    except PackageNotFoundError:
        return "unknown"
