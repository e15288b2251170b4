"""The options of a backup."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BackupOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """The load that a backup puts on a node, and its attempts.

    The backup pauses between two requests, so that it reads at most ``bytes_per_second``, and so that a node works on
    its requests for at most ``share`` of the time. ``request_bytes``: the size of one request. ``attempts``: the backup
    fails after this number of failed nodes. ``is_full``: use nothing of earlier backups, and write every object again,
    also over a damaged one.
    """

    bytes_per_second: int = 32 * 1024 * 1024
    share: float = 0.25
    request_bytes: int = 512 * 1024
    attempts: int = 5
    is_full: bool = False
