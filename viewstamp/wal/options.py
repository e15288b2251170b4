"""The settings of a log."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a log.

    ``queue_bytes_max`` bounds what is reserved and not yet complete. ``bytes_max`` bounds all segments and spares
    together, at every instant, and the log is preallocated to it; at least two segments; 0 = only the disk bounds it.
    ``reserve_bytes`` of the disk stay free. ``margin_bytes`` of the room, at most a quarter of a segment, are kept for
    what is urgent. ``idle_seconds`` after the last append the last group is closed by an empty one.

    ``sync_seconds`` 0 = an append is complete when it is durable. Above it, the interval mode: an append is complete
    when it is written, and durable at most so much later; a power cut takes what was completed since the last sync.
    """

    segment_bytes: int = 16 * 1024 * 1024
    queue_bytes_max: int = 64 * 1024 * 1024
    bytes_max: int = 0
    reserve_bytes: int = 32 * 1024 * 1024
    margin_bytes: int = 1024 * 1024
    idle_seconds: float = 0.25
    sync_seconds: float = 0.0
