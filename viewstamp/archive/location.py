"""Which store a setting names: a directory, or a bucket by its URL."""

from __future__ import annotations

from collections.abc import Callable

from viewstamp.archive.store import DirectoryObjects, ObjectStore
from viewstamp.host.disk import RealDisk
from viewstamp.host.object_url import is_object_url, parse_object_url

__all__ = ["open_store"]


def open_store(where: str, on_change: Callable[[str, str], None] = lambda _trouble, _remedy: None) -> ObjectStore:
    """Return the store of runs at the path of a directory, or at the URL of a bucket; nothing is read or sent.

    Args:
      where: as the setting has it.
      on_change: called in another thread with the trouble and its remedy if a bucket is found to be unusable, and with
        two empty texts if it can be used again.

    Raises:
      ConfigError: the URL has another shape, or a package for it is not installed.
    """
    if is_object_url(where):
        from viewstamp.archive.s3_store import S3Objects

        return S3Objects(parse_object_url(where), on_change=on_change)
    return DirectoryObjects(RealDisk(), where)
