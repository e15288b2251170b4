"""What a client knows of something that it asked for."""

from __future__ import annotations

from enum import Enum

__all__ = ["Fate"]


class Fate(Enum):
    """Whether it happened, as far as its client was told."""

    PENDING = "pending"
    APPLIED = "applied"
    NEVER = "never"
    UNKNOWN = "unknown"
