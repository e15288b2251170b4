"""Ages and sizes as people write them: ``7d``, ``64MiB``."""

from __future__ import annotations

import re
from typing import Final

import typer

__all__ = ["parse_age", "parse_bytes", "show_age"]

_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_age(text: str) -> float:
    """Return the seconds of a text such as ``2w``, ``7d``, ``12h``, ``30m``, ``45s``; 0 needs no unit.

    Any other number without a unit is rejected, because ``7`` meant as days would keep only 7 seconds of records.
    """
    if text.strip() == "0":
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([wdhms])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not an age; write 2w, 7d, 12h, 30m or 45s, or 0 for no limit")
    return float(match[1]) * _SECONDS[match[2]]


def show_age(seconds: float) -> str:
    """Return seconds as text in the largest unit that gives a whole number; weeks as days."""
    for unit, size in _SECONDS.items():
        if unit != "w" and seconds % size == 0 and seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def parse_bytes(text: str) -> int:
    """Return the bytes of a text such as ``1048576``, ``16MB`` (millions) or ``64MiB`` (2^20); case does not matter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise typer.BadParameter(
            f"{text!r} is not a size; write a number of bytes, or 500kB, 16MB, 64MiB, 2GiB, or 0 for no limit"
        )
    return int(float(match[1]) * _BYTES[match[2]]) if match[2] or "." in match[1] else int(match[1])
