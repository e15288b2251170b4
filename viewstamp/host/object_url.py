"""URLs of object stores as people write them: ``s3://bucket`` or ``s3://bucket/folder``. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from viewstamp.errors import ConfigError

__all__ = ["OBJECT_URL_ALLOWED", "ObjectUrl", "is_object_url", "parse_object_url"]

OBJECT_URL_ALLOWED = "s3://BUCKET or s3://BUCKET/FOLDER"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOLDER = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*")
_SCHEME = "s3://"


class ObjectUrl(NamedTuple):
    """A folder of a bucket. ``folder`` has no slash at its ends; "" = the whole bucket."""

    bucket: str
    folder: str

    @property
    def text(self) -> str:
        """The URL, without a slash at its end."""
        return f"{_SCHEME}{self.bucket}" + (f"/{self.folder}" if self.folder else "")


def is_object_url(text: str) -> bool:
    """Return whether a text is meant as a URL, and not as the path of a directory."""
    return "://" in text


def parse_object_url(text: str) -> ObjectUrl:
    """Split a URL.

    Raises:
      ConfigError: it has another shape. The message does not repeat a part before an ``@``, which may be a secret.
    """
    bucket, _, folder = text.removeprefix(_SCHEME).rstrip("/").partition("/")
    parts = folder.split("/")
    is_right = text.startswith(_SCHEME) and _BUCKET.fullmatch(bucket) and (not folder or _FOLDER.fullmatch(folder))
    if not is_right or "." in parts or ".." in parts:
        shown = f"...@{text.rpartition('@')[2]}" if "@" in text else text
        raise ConfigError(
            f"{shown[:300]!r} is not the URL of an object store",
            remedy=f"write {OBJECT_URL_ALLOWED}; credentials, region and endpoint come from the environment variables"
            " and files of the AWS tools, not from the URL",
        )
    return ObjectUrl(bucket, folder)
