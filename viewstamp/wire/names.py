"""The rules for names of topics and sinks: for new ones, and for existing ones.

Names appear in commands, file names, URLs, log lines and tables. A name that begins with ``-`` would be taken for an
option, ``.`` and ``..`` are directories, and control characters change a terminal. So new names are restricted, by this
module, for the client and for the leader alike:

| | existing | new |
| --- | --- | --- |
| topic | 1 to 128 letters, digits, dots, underscores or hyphens | the first one a letter, a digit or an underscore |
| sink | up to 256 bytes of UTF-8 | not empty, printable, not beginning with a hyphen, not ``.`` or ``..`` |

The rule for existing names is what earlier versions accepted. It must never become stricter, because the log holds the
commands that created them, and every member has to apply these alike. The rule for new names is applied by the leader
before such a command enters the log.
"""

from __future__ import annotations

import re

from viewstamp.errors import RequestError
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["NAME_BYTES_MAX", "check_encodable", "check_new_sink", "check_new_topic", "check_topic", "is_one_line"]

NAME_BYTES_MAX = 256
"""The longest name of a sink, an owner, a run or an attempt, in bytes of UTF-8."""

_CONTROLS = frozenset(map(chr, [*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A)]))
_TOPIC = re.compile("[A-Za-z0-9._-]{1,128}")
_TOPIC_REMEDY = "take 1 to 128 letters, digits, dots, underscores or hyphens"


def check_topic(name: object) -> str:
    """Return ``name`` if there may be a topic of this name.

    Raises:
      RequestError: there cannot be; the message shows the name.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise RequestError(f"a topic cannot be named {brief_repr(name)}", remedy=_TOPIC_REMEDY)
    return name


def check_new_topic(name: object) -> str:
    """Return ``name`` if a new topic may be given this name.

    Raises:
      RequestError: it may not; the message shows the name.
    """
    if check_topic(name)[0] in ".-":
        raise RequestError(
            f"a new topic cannot be named {brief_repr(name)}",
            remedy=f"{_TOPIC_REMEDY}; the first one a letter, a digit or an underscore",
        )
    return str(name)


def check_new_sink(name: str) -> str:
    """Return ``name`` if a new sink may be given this name.

    Raises:
      RequestError: it may not; the message shows the name.
    """
    check_encodable(name, "the name of a sink")
    is_bad = not name or not name.isprintable() or name in (".", "..") or name.startswith("-")
    if is_bad or len(name.encode()) > NAME_BYTES_MAX:
        raise RequestError(
            f"a new sink cannot be named {brief_repr(name)}",
            remedy=f"take 1 to {NAME_BYTES_MAX} bytes of printable text that does not begin with a hyphen",
        )
    return name


def is_one_line(text: str) -> bool:
    """Return whether a text has no control character, and none that ends a line or turns the direction of writing.

    The set is fixed, because members decide by it when they apply a record. ``str.isprintable`` follows the version of
    Unicode of the Python that runs, so members with different ones could decide differently.
    """
    return _CONTROLS.isdisjoint(text)


def check_encodable(text: str, what: str) -> str:
    """Return ``text`` if it can be encoded as UTF-8.

    Raises:
      RequestError: it holds half of a surrogate pair, as a file name of other bytes does when Python reads it.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{what} cannot be {brief_repr(text)}: character {error.start + 1} cannot be encoded as UTF-8",
            remedy="give text of whole characters",
        ) from error
    return text
