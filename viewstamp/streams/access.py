"""Tokens and the audit log: the part of the replicated state that decides the rights of callers.

A token that has ended (revoked, or expired by log time) stays here with its hashes, for two reasons: a late copy of the
request that created it must not bring it back, and its owner may still ask for the outcomes of its own batches.
The oldest ended tokens are forgotten above ``ENDED_MAX``.
"""

from __future__ import annotations

import hmac
import itertools
import re
from collections import deque
from typing import Any, cast

import msgpack

from viewstamp.errors import RequestError
from viewstamp.wire.access import Right, TokenRole, check_roles, read_role
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.names import is_one_line
from viewstamp.wire.staged import decode_fields

__all__ = ["AUDIT_MAX", "ENDED_MAX", "TOKENS_MAX", "Access", "TokenState"]

TOKENS_MAX = 1000
"""The most tokens that have not ended."""
ENDED_MAX = 10_000
AUDIT_MAX = 10_000
"""The most entries of the audit log; above it the oldest is dropped."""
_ID = re.compile("[0-9a-f]{12}")
_HASH_BYTES = 32
_NAME_MAX = 128
_SECONDS_MAX = 1_000_000_000
_DETAIL_MAX = 500
_NEVER = 1 << 63
_VERSIONS = itertools.count()
"""Versions of all states in this process, so that no two states, also of a snapshot, have the same one."""


class TokenState:
    """One token.

    Invariants:
      * ``secrets`` has the hash of the newest secret last, and at most one before it
      * ``old_until`` is 0 if there is no older secret
    """

    __slots__ = ("created", "ended", "expires", "id", "name", "old_until", "roles", "rotation", "secrets")

    def __init__(self, token_id: str, name: str, roles: tuple[TokenRole, ...], secrets: list[bytes]) -> None:
        self.id = token_id
        self.name = name
        self.roles = roles
        self.secrets = secrets
        self.created = self.expires = self.ended = self.old_until = self.rotation = 0

    def has_secret(self, hashed: bytes) -> bool:
        """Return whether one of the token's secrets has this hash. Compares in constant time."""
        return any(hmac.compare_digest(secret, hashed) for secret in self.secrets)

    @property
    def is_administrator(self) -> bool:
        """Whether the token has the role administer."""
        return any(role.right is Right.ADMINISTER for role in self.roles)

    @property
    def next_end(self) -> int:
        """The log time at which the token or its older secret ends; ``_NEVER`` = at no time."""
        if self.ended:
            return _NEVER
        return min(self.expires or _NEVER, self.old_until or _NEVER)

    def describe(self, *, is_on: bool) -> dict[str, object]:
        """Return the map of the answer to CREATE_TOKEN. It has no hash."""
        return {
            "id": self.id,
            "name": self.name,
            "roles": [str(role) for role in self.roles],
            "created": self.created,
            "expires": self.expires,
            "ended": self.ended,
            "old_until": self.old_until,
            "rotation": self.rotation,
            "is_on": is_on,
        }

    def image(self) -> list[object]:
        """Return the token as plain values."""
        roles = [str(role) for role in self.roles]
        times = [self.created, self.expires, self.ended, self.old_until, self.rotation]
        return [self.id, self.name, roles, self.secrets, *times]

    @classmethod
    def from_image(cls, image: list[Any]) -> TokenState:
        """Rebuild a token from :meth:`image`."""
        token = cls(image[0], image[1], tuple(read_role(role) for role in image[2]), list(image[3]))
        token.created, token.expires, token.ended, token.old_until, token.rotation = image[4:9]
        return token


class Access:
    """All tokens, whether access control is on, and the audit log.

    Invariants:
      * ``is_on`` never becomes False
      * ``version`` changes with every change of a right
    """

    __slots__ = ("audit", "is_on", "next_end", "tokens", "version")

    def __init__(self) -> None:
        self.tokens: dict[str, TokenState] = {}
        """By id, in the order of their creation; ended ones in the order of their end, before or behind the others."""
        self.is_on = False
        self.version = next(_VERSIONS)
        self.next_end = _NEVER
        """The log time at which the next token, or an older secret, ends."""
        self.audit: deque[bytes] = deque(maxlen=AUDIT_MAX)
        """Packed entries: [log time, index, caller, action, subject]."""

    @property
    def is_used(self) -> bool:
        """Whether there is anything to store: a token was created once."""
        return bool(self.tokens)

    # Applying.

    def apply(self, batch: Batch) -> dict[str, object]:
        """Apply a record of tokens or of the audit log.

        Raises:
          RequestError: a replicated refusal.
        """
        match batch.kind:
            case Kind.CREATE_TOKEN:
                token = self._create(batch)
            case Kind.ROTATE_TOKEN:
                token = self._rotate(batch)
            case Kind.REVOKE_TOKEN:
                token = self._revoke(batch)
            case _:
                action, detail = decode_fields(batch, action=str, detail=str)
                self.note(batch, action, detail)
                return {}
        self._changed()
        return {"token": token.describe(is_on=self.is_on)}

    def note(self, batch: Batch, action: str, detail: str, by: str = "") -> None:
        """Add an entry to the audit log, which begins with the first token. ``by`` "" = as the record says."""
        if not self.is_used:
            return
        fields = msgpack.unpackb(batch.values()[0])
        said = fields.get("by")
        by = by or (said if type(said) is str else "")
        entry = [batch.log_time, batch.first_index, by[:_DETAIL_MAX], action[:_DETAIL_MAX], detail[:_DETAIL_MAX]]
        self.audit.append(cast("bytes", msgpack.packb(entry)))

    def expire(self, log_time: int) -> bool:
        """End the tokens and older secrets that have expired; return whether there were any."""
        if log_time < self.next_end:
            return False
        for token in list(self.tokens.values()):
            if token.old_until and token.old_until <= log_time:
                del token.secrets[:-1]
                token.old_until = 0
            if not token.ended and token.expires and token.expires <= log_time:
                self._end(token, log_time)
        self._changed()
        return True

    def is_due(self, log_time: int) -> bool:
        """Return whether a token or a secret ends at or before a log time."""
        return self.next_end <= log_time

    def _create(self, batch: Batch) -> TokenState:
        token_id, name, texts, hashed, expire_seconds = decode_fields(
            batch, token=str, name=str, roles=list, hash=bytes, expire_seconds=int
        )
        roles = check_roles(texts)
        if not _ID.fullmatch(token_id) or len(hashed) != _HASH_BYTES or expire_seconds > _SECONDS_MAX:
            raise RequestError(
                f"a token cannot have the id {brief_repr(token_id)} and end after {expire_seconds} s",
                remedy=f"create it with `viewstamp token create`; it may end after up to {_SECONDS_MAX} s",
            )
        if not name or not is_one_line(name) or len(name) > _NAME_MAX or name.startswith("-") or _ID.fullmatch(name):
            raise RequestError(
                f"a token cannot be named {brief_repr(name)}",
                remedy=f"take 1 to {_NAME_MAX} printable characters, the first no hyphen, and not the id of a token",
            )
        found = self.tokens.get(token_id)
        if found is not None:
            if found.ended or found.name != name or found.roles != roles or not found.has_secret(hashed):
                raise RequestError(f"the id {token_id} is another token's", remedy="create the token again")
            return found
        alive = [token for token in self.tokens.values() if not token.ended]
        if any(token.name == name for token in alive):
            raise RequestError(f"a token is named {name!r} already", remedy="take another name, or revoke that one")
        if len(alive) >= TOKENS_MAX:
            raise RequestError(f"there are {TOKENS_MAX} tokens, which is the limit", remedy="revoke unused ones")
        token = TokenState(token_id, name, roles, [hashed])
        token.created = batch.log_time
        token.expires = batch.log_time + expire_seconds * 1_000_000 if expire_seconds else 0
        self.tokens[token_id] = token
        self.is_on = self.is_on or token.is_administrator
        self.note(batch, "token create", f"{name}: {', '.join(map(str, roles))} ({token_id})")
        return token

    def _rotate(self, batch: Batch) -> TokenState:
        token_id, rotation, hashed, keep = decode_fields(batch, token=str, rotation=int, hash=bytes, keep_seconds=int)
        token = self._alive(token_id)
        if rotation == token.rotation and hmac.compare_digest(token.secrets[-1], hashed):
            return token  # A second copy of the request.
        if rotation != token.rotation + 1 or len(hashed) != _HASH_BYTES or keep > _SECONDS_MAX:
            raise RequestError(
                f"token {token_id} was rotated {token.rotation} times, not {rotation - 1}",
                remedy="look with `viewstamp token list`, then rotate it again",
            )
        token.rotation = rotation
        token.secrets = [*(token.secrets[-1:] if keep else []), hashed]
        token.old_until = batch.log_time + keep * 1_000_000 if keep else 0
        self.note(batch, "token rotate", f"{token.name}: keep the older secret for {keep} s ({token_id})")
        return token

    def _revoke(self, batch: Batch) -> TokenState:
        token_id, only_old = decode_fields(batch, token=str, only_old=bool)
        token = self.tokens.get(token_id)
        if token is None:
            raise _unknown(token_id)
        if token.ended:
            return token
        if only_old:
            del token.secrets[:-1]
            token.old_until = 0
        else:
            self._end(token, batch.log_time)
        self.note(batch, "token revoke", f"{token.name}{': its older secret' if only_old else ''} ({token_id})")
        return token

    def _alive(self, token_id: str) -> TokenState:
        token = self.tokens.get(token_id)
        if token is None or token.ended:
            raise _unknown(token_id)
        return token

    def _end(self, token: TokenState, log_time: int) -> None:
        token.ended = log_time
        token.old_until = 0
        # Moved to the end, so that the first ended token is the one that ended first.
        self.tokens[token.id] = self.tokens.pop(token.id)
        ended = [each.id for each in self.tokens.values() if each.ended]
        for token_id in ended[: max(0, len(ended) - ENDED_MAX)]:
            del self.tokens[token_id]

    def _changed(self) -> None:
        self.version = next(_VERSIONS)
        self.next_end = min((token.next_end for token in self.tokens.values()), default=_NEVER)

    def entries(self, since: int) -> list[list[object]]:
        """Return the entries of the audit log from a log time on, the oldest first."""
        return [entry for entry in map(msgpack.unpackb, self.audit) if entry[0] >= since]

    # Images.

    def image(self) -> list[object]:
        """Return the tokens and the audit log as plain values."""
        return [self.is_on, [token.image() for token in self.tokens.values()], list(self.audit)]

    @classmethod
    def from_image(cls, image: list[Any]) -> Access:
        """Rebuild the state from :meth:`image`."""
        access = cls()
        access.is_on, tokens, audit = image
        access.tokens = {token.id: token for token in map(TokenState.from_image, tokens)}
        access.audit.extend(audit)
        access._changed()
        return access


def _unknown(token_id: str) -> RequestError:
    return RequestError(f"no valid token has the id {brief_repr(token_id)}", remedy="look with `viewstamp token list`")
