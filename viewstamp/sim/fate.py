"""What a client knows of something that it asked for."""

from __future__ import annotations

from enum import Enum

from viewstamp.enums import fast_members

__all__ = ["Fate"]


@fast_members
class Fate(Enum):
    """Whether it happened, as far as its client was told."""

    PENDING = "pending"
    APPLIED = "applied"
    NEVER = "never"
    UNKNOWN = "unknown"
