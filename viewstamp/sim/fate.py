"""What a client knows of something that it asked for."""

from __future__ import annotations

from enum import Enum

from viewstamp.enums import quick

__all__ = ["Fate"]


@quick
class Fate(Enum):
    """Whether it happened, as far as its client was told."""

    PENDING = "pending"
    APPLIED = "applied"
    NEVER = "never"
    UNKNOWN = "unknown"
