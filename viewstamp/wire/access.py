"""Tokens, rights and needs: the text of a token, the right that a role gives, the right that a request needs. Pure.

A token is ``vst_ID_SECRET``: a public id of 12 hexadecimal digits, and 64 hexadecimal digits of a random secret. The
prefix is fixed so that scanners of source code find a token that was committed by mistake. The cluster keeps the id and
a hash of the secret. Scrypt is not used for it, because a secret of 256 random bits cannot be guessed.

A role is ``RIGHT:PATTERN``, for example ``append:orders*``. A pattern is one name, or the beginning of names if it ends
with ``*``. A name without ``*`` is compared as a whole, because otherwise the right to append to ``orders`` would
include ``orders-archive``, which another team may create later.

| right | lets a token |
| --- | --- |
| read | read topics and sinks, query and watch actors |
| append | append to topics, create them, and write to sinks |
| call | call commands of actors, query and watch them |
| administer | do everything, with every name |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, cast

import msgpack

from viewstamp.errors import RequestError
from viewstamp.wire.batch import Buffer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import is_one_line

__all__ = [
    "ANYONE",
    "MEMBERS",
    "PAYLOAD",
    "SECRET_BYTES",
    "Need",
    "Right",
    "Token",
    "TokenRole",
    "audit_record",
    "check_roles",
    "has_token",
    "opening_record",
    "owner_of",
    "read_role",
]

SECRET_BYTES = 32
_ID_BYTES = 6
_TOKEN = re.compile(r"vst_([0-9a-f]{12})_([0-9a-f]{64})")
_MARK = re.compile(r"vst_[0-9a-f]{12}_")
_PATTERN_MAX = 256
ROLES_MAX = 64
"""The most roles of one token."""


class Right(StrEnum):
    """A right that a role gives."""

    READ = "read"
    APPEND = "append"
    CALL = "call"
    ADMINISTER = "administer"


class TokenRole(NamedTuple):
    """A right on the names that a pattern covers. The pattern of ``administer`` is ``*``."""

    right: Right
    pattern: str

    def covers(self, name: str) -> bool:
        """Return whether the pattern covers a name."""
        pattern = self.pattern
        return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern

    def __str__(self) -> str:
        return self.right.value if self.right is Right.ADMINISTER else f"{self.right.value}:{self.pattern}"


def has_token(text: str) -> bool:
    """Return whether a text contains a token, or a part of one, so that it must not be shown."""
    return _MARK.search(text) is not None


def read_role(text: object) -> TokenRole:
    """Read a role: ``RIGHT:PATTERN``, or ``RIGHT`` alone for all names.

    Raises:
      RequestError: it is no role.
    """
    right, colon, pattern = text.partition(":") if isinstance(text, str) else ("", "", "")
    is_known = right in list(Right)
    is_whole = right == Right.ADMINISTER
    wild = pattern.find("*")
    if (
        not is_known
        or (colon and is_whole)
        or (colon and not pattern)
        or (0 <= wild < len(pattern) - 1)
        or len(pattern) > _PATTERN_MAX
        or not is_one_line(pattern)
    ):
        raise RequestError(
            f"{brief_repr(text)} is no role",
            remedy="give read:NAME, append:NAME or call:NAME, where NAME is one topic, sink or actor, or the beginning"
            " of their names followed by *; or administer",
        )
    return TokenRole(Right(right), pattern or "*")


def check_roles(texts: object) -> tuple[TokenRole, ...]:
    """Read the roles of a token, at least one.

    Raises:
      RequestError: there is none, there are too many, or one is no role.
    """
    if not isinstance(texts, list) or not 1 <= len(texts) <= ROLES_MAX:
        raise RequestError(f"a token cannot have the roles {brief_repr(texts)}", remedy=f"give 1 to {ROLES_MAX} roles")
    return tuple(dict.fromkeys(read_role(text) for text in texts))


PAYLOAD = "payload"
"""The place of the name if it is in the batch that is the payload of the frame."""


@dataclass(frozen=True, slots=True, init=False)
class Need:
    """The right that a request needs: one of ``rights``, on the name in a field of the request.

    Attributes:
      rights: one of these is enough; ``administer`` always is.
      of: the kind of thing that is named: "topic" (in another group than 0 it is a stream), "spread" (a spread topic),
        "sink", "actor", "attempt" or "session"; "" = a right on any name is enough.
      on: the field that has its name or its id, or ``PAYLOAD``.
    """

    rights: tuple[Right, ...]
    of: str
    on: str

    def __init__(self, *rights: Right, **named: str) -> None:
        """Describe a need: ``Need(Right.APPEND, topic="name")``."""
        of, on = next(iter(named.items()), ("", ""))
        assert len(named) <= 1, "a request needs a right on one name"
        object.__setattr__(self, "rights", rights)
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "on", on)

    @property
    def is_administrative(self) -> bool:
        """Whether only an administrator may send the request."""
        return self.rights == (Right.ADMINISTER,)


ANYONE = Need()
"""The need of a request that is answered to everyone."""
MEMBERS = Need(member="")
"""The need of a request that only a member of the group may send, on a connection of peers."""


class Token(NamedTuple):
    """A token as its owner has it. Its text is secret; ``repr`` and ``str`` show the id only."""

    id: str
    secret: bytes

    @classmethod
    def new(cls, random_bytes: Callable[[int], bytes], *, id: str = "") -> Token:  # noqa: A002  # as on the wire
        """Return a new token, or a new secret of the token with this ``id``."""
        return cls(id or random_bytes(_ID_BYTES).hex(), random_bytes(SECRET_BYTES))

    @classmethod
    def read(cls, text: str) -> Token:
        """Read a token's text.

        Raises:
          RequestError: it is no token. The message does not contain the text, because that may be a secret.
        """
        found = _TOKEN.fullmatch(text.strip())
        if found is None:
            raise RequestError(
                f"the text given is no token ({len(text.strip())} characters)",
                remedy="give the whole text that `viewstamp token create` printed: vst_ID_SECRET",
            )
        return cls(found[1], bytes.fromhex(found[2]))

    @property
    def text(self) -> str:
        """The text to hand to the owner, and to send in HELLO."""
        return f"vst_{self.id}_{self.secret.hex()}"

    @property
    def hash(self) -> bytes:
        """The 32 bytes that the cluster keeps. The id is part of it, so equal secrets have different hashes."""
        return blake2b(self.secret, key=self.id.encode(), digest_size=32, person=b"viewstamp-token").digest()

    def __repr__(self) -> str:
        return f"<Token {self.id}>"

    def __str__(self) -> str:
        return repr(self)


def opening_record(owner: str) -> bytes:
    """Return the record of an OPEN_SESSION batch; ``owner``: the id of the token that opens it, "" = none."""
    return cast("bytes", msgpack.packb({"token": owner})) if owner else b""


def owner_of(record: Buffer) -> str:
    """Return the owner in the record of an OPEN_SESSION batch; releases without tokens write it empty."""
    return str(msgpack.unpackb(record)["token"]) if len(record) else ""


def audit_record(action: str, detail: str, by: str) -> bytes:
    """Return the record of an AUDIT batch, for an action that has no record of its own: see ``AuditEntry``."""
    return cast("bytes", msgpack.packb({"action": action, "detail": detail, "by": by}))
