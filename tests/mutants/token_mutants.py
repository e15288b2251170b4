"""Planted mistakes in tokens, in the checks of requests, and in the audit log."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.node import audit_notes, server
from viewstamp.node.access import Credentials
from viewstamp.node.token_age import TokenAge
from viewstamp.streams import gate
from viewstamp.streams.access import Access, TokenState
from viewstamp.streams.gate import StateGate
from viewstamp.wire.access import TokenRole
from viewstamp.wire.batch import Kind
from viewstamp.wire.commands import Command
from viewstamp.wire.identity_proof import administrator_proof
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.token_requests import ListAudit

__all__ = ["TOKEN_MUTANTS"]


def commands_unchecked() -> AbstractContextManager[None]:
    def check_commands(self: StateGate, credentials: Credentials, commands: list[Command]) -> None:
        """Check nothing."""

    return patched(StateGate, check_commands=check_commands)


def trim_by_everyone() -> AbstractContextManager[None]:
    return patched(gate, _NEEDS={**gate._NEEDS, Kind.TRIM_TOPIC: gate._NEEDS[Kind.CREATE_TOPIC]})


def revoked_is_valid() -> AbstractContextManager[None]:
    """A connection keeps the rights that it had when it sent its first request."""
    original = StateGate.refresh

    def refresh(self: StateGate, credentials: Credentials) -> None:
        if credentials.version < 0:
            original(self, credentials)
        credentials.version = self.access.version

    return patched(StateGate, refresh=refresh)


def prefix_for_every_name() -> AbstractContextManager[None]:
    return patched(TokenRole, covers=lambda self, name: name.startswith(self.pattern.rstrip("*")))


def expiry_ignored() -> AbstractContextManager[None]:
    return patched(Access, expire=lambda self, log_time: False)


def id_is_enough() -> AbstractContextManager[None]:
    return patched(TokenState, has_secret=lambda self, hashed: True)


def audit_for_everyone() -> AbstractContextManager[None]:
    original = StateGate.check

    def check(self: StateGate, credentials: Credentials, asked: RequestBody) -> None:
        if not isinstance(asked, ListAudit):
            original(self, credentials, asked)

    return patched(StateGate, check=check)


def sessions_for_everyone() -> AbstractContextManager[None]:
    """Any client may use any session of which it knows the id."""
    original = StateGate.refresh

    def refresh(self: StateGate, credentials: Credentials) -> None:
        original(self, credentials)
        credentials.owner = _Anyone()

    return patched(StateGate, refresh=refresh)


class _Anyone(str):
    """Equal to every owner."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def waiting_unchecked() -> AbstractContextManager[None]:
    """A read is checked before its wait only."""
    return patched(server._ServerConnection, check=lambda self, asked: None)


def denied_at_once() -> AbstractContextManager[None]:
    """A node denies by its own state, which may lack the token."""

    async def confirm(self: Any) -> None:
        """Confirm nothing."""

    from viewstamp.node.reading import Reading

    return patched(Reading, confirm=confirm)


def outcome_for_everyone() -> AbstractContextManager[None]:
    """A leader without room for a batch does not check who sent it, and answers with an earlier outcome."""
    return patched(StateGate, check_sender=lambda self, credentials, batch: None)


def old_copy_revives() -> AbstractContextManager[None]:
    """A revoked token is forgotten, so a late copy of the request that created it brings it back."""
    original = Access._end

    def end(self: Access, token: TokenState, log_time: int) -> None:
        original(self, token, log_time)
        with contextlib.suppress(KeyError):
            del self.tokens[token.id]

    return patched(Access, _end=end)


def proof_without_target() -> AbstractContextManager[None]:
    """The proof of a directory does not name the node that it is for."""

    def proof(incarnation: str, *, directory_of: str, to: str, challenge: bytes) -> bytes:
        return administrator_proof(incarnation, directory_of=directory_of, to="n1", challenge=challenge)

    return patched(server, administrator_proof=proof)


def age_of_tokens_ignored() -> AbstractContextManager[None]:
    return patched(TokenAge, check=lambda self: None, use=lambda self, gate, credentials: True)


def groups_have_own_tokens() -> AbstractContextManager[None]:
    return patched(StateGate, follow=lambda self, group, group_0, check_known: None)


def right_on_the_stream() -> AbstractContextManager[None]:
    return patched(StateGate, _topic_name=lambda self, name: name)


def ended_token_fences_nothing() -> AbstractContextManager[None]:
    return patched(StateGate, ends_everywhere=property(lambda self: True))


def transfer_unnoted() -> AbstractContextManager[None]:
    async def note_before(caller: Any, action: str, subject: str, *, noted: int, detail: str = "") -> None:
        """Check nothing."""

    return everywhere(audit_notes.note_before, note_before)


TOKEN_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("commands-unchecked", "commands of actors need no right", commands_unchecked, rule="§10a"),
        Mutant("trim-by-everyone", "a topic is trimmed for who may append", trim_by_everyone, rule="§10a"),
        Mutant(
            "revoked-is-valid", "an open connection keeps the rights of a revoked token", revoked_is_valid, rule="§10a"
        ),
        Mutant(
            "prefix-for-every-name", "a name without a star is compared as a prefix", prefix_for_every_name, rule="§10a"
        ),
        Mutant("expiry-ignored", "a token does not expire", expiry_ignored, rule="§10a"),
        Mutant("id-is-enough", "the id of a token is compared, its secret is not", id_is_enough, rule="§10a"),
        Mutant("audit-for-everyone", "every caller may read the audit log", audit_for_everyone, rule="§10a"),
        Mutant("sessions-for-everyone", "a session may be used with another token", sessions_for_everyone, rule="§10a"),
        Mutant("waiting-unchecked", "a read is not checked after its wait", waiting_unchecked, rule="§10a"),
        Mutant("denied-at-once", "a node that may lack the token denies a request", denied_at_once, rule="§10a"),
        Mutant(
            "outcome-for-everyone",
            "a leader whose log is full gives the outcome of a batch to every caller",
            outcome_for_everyone,
            rule="§10a",
        ),
        Mutant(
            "old-copy-revives", "a late copy of its creation revives a revoked token", old_copy_revives, rule="§10a"
        ),
        Mutant(
            "proof-without-target", "a proof of a directory is good for every node", proof_without_target, rule="§10a"
        ),
        Mutant(
            "age-of-tokens-ignored",
            "a node permits requests in a group by tokens of any age",
            age_of_tokens_ignored,
            rule="§10a",
        ),
        Mutant(
            "groups-have-own-tokens",
            "a group decides by tokens in its own state, which has none",
            groups_have_own_tokens,
            rule="§10a",
        ),
        Mutant(
            "right-on-the-stream",
            "a stream needs the right on its own name, not on that of its topic",
            right_on_the_stream,
            rule="§10a",
        ),
        Mutant(
            "ended-token-fences-nothing",
            "a group calls a batch of an ended token not applied without a fence",
            ended_token_fences_nothing,
            rule="§10a",
        ),
        Mutant(
            "transfer-unnoted",
            "a leader in a group is moved without an entry in the audit log",
            transfer_unnoted,
            rule="§10a",
        ),
    )
}
"""The mutants by name."""
