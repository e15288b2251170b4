"""Shorten values that came from outside for error messages."""

from __future__ import annotations

import reprlib

__all__ = ["brief_repr"]

_LENGTH_MAX = 100

_short = reprlib.Repr()
_short.maxlevel = 3
_short.maxstring = _short.maxother = _short.maxlong = 60


def brief_repr(value: object) -> str:
    """Return ``value`` as Python would write it, shortened to 100 characters.

    Plain ``repr`` raises for lists a thousand deep and for numbers of five thousand digits, both of which msgpack
    reads. It also makes a text of 40 MB from bytes of 10 MB, of which an error message shows 100 characters.
    """
    try:
        return _short.repr(value)[:_LENGTH_MAX]
    except ValueError:  # a number too long to be written in decimal digits
        return f"a {type(value).__name__} with a number of too many digits"
