"""Sizes and durations as people write them: ``64MiB``, ``7d``, ``250ms``. Pure.

Settings files, environment variables and command-line options use the same units, which are listed only here.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "DURATION_UNITS",
    "SIZE_UNITS",
    "parse_duration",
    "parse_size",
    "rounded_size",
    "show_duration",
    "show_size",
]

SIZE_UNITS: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
    "EiB": 2**60,
}
"""Bytes of each unit of size. Case does not matter in input."""

DURATION_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Milliseconds of each unit of time."""

_SIZES: Final = {unit.lower(): count for unit, count in SIZE_UNITS.items()}
_NUMBER: Final = re.compile(r"(\d+)(?:\.(\d+))? ?([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of a text such as ``1048576``, ``16MB`` (millions) or ``64MiB`` (times 2^20).

    Raises:
      ValueError: it is not a size, or not a whole number of bytes; the message has the allowed units.
    """
    found = _exact(text, {"": 1, **_SIZES}, lower=True)
    if found is None:
        units = ", ".join(SIZE_UNITS)
        raise ValueError(f"{text!r} is not a size; write a whole number of bytes, or a number and a unit: {units}")
    return found


def parse_duration(text: str, *, bare: str = "") -> int:
    """Return the milliseconds of a text such as ``7d``, ``12h``, ``30m``, ``1.5s`` or ``250ms``.

    Args:
      text: a number and a unit; 0 needs none.
      bare: the unit of a number without one. "" = such a number is an error, because 7 meant as days would be read as
        seconds.

    Raises:
      ValueError: it is not a duration, or not a whole number of milliseconds; the message has the allowed units.
    """
    units = {"": DURATION_UNITS[bare]} if bare else {}
    found = 0 if text.strip() == "0" else _exact(text, {**units, **DURATION_UNITS}, lower=False)
    if found is None:
        listed = ", ".join(DURATION_UNITS)
        plain = f"; without a unit it is in {bare}" if bare else ""
        raise ValueError(
            f"{text!r} is not a duration; write a number and a unit: {listed}; for example 90s or 7d{plain}"
        )
    return found


def _exact(text: str, units: dict[str, int], *, lower: bool) -> int | None:
    """Return a number times its unit, computed without rounding; None = no number, no such unit, or a fraction."""
    match = _NUMBER.fullmatch(text.strip())
    unit = "" if match is None else match[3].lower() if lower else match[3]
    if match is None or unit not in units:
        return None
    digits = match[2] or ""
    count, rest = divmod(int(match[1] + digits) * units[unit], 10 ** len(digits))
    return count if rest == 0 else None


def show_size(count: int) -> str:
    """Return bytes as text that :func:`parse_size` reads back exactly: the smallest whole number of any unit."""
    if count == 0:
        return "0"
    number, unit = min((count // size, unit) for unit, size in SIZE_UNITS.items() if count % size == 0)
    return f"{number}{unit}"


def rounded_size(count: int) -> str:
    """Return bytes that were counted as text for people, such as ``610.5 KiB``; settings are shown exactly."""
    unit = next((unit for unit in ("MiB", "KiB") if count >= SIZE_UNITS[unit]), "")
    return f"{count / SIZE_UNITS[unit]:,.1f} {unit}" if unit else f"{count} B"


def show_duration(milliseconds: float) -> str:
    """Return a duration as text in the largest unit, up to days, that gives a whole number."""
    if milliseconds != int(milliseconds):
        return f"{milliseconds:g}ms"
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(int(milliseconds), DURATION_UNITS[unit])
        if count and not rest:
            return f"{count}{unit}"
    return "0"
