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

    Plain ``repr`` fails on lists a thousand deep and on numbers of five thousand digits, both of which msgpack reads;
    and of ten megabytes it makes forty, to show a hundred characters. An error must not fail.
    """
    try:
        return _short.repr(value)[:_LENGTH_MAX]
    except ValueError:  # a number too long to be written in decimal digits
        return f"a {type(value).__name__} with a number of too many digits"
