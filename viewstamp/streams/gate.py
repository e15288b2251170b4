"""The gate: whether a caller may send a request, by the needs in ``wire/requests.py`` and the tokens in the state.

``node/access.py`` says when it is asked. This module only reads the state.

| named by | stands for |
| --- | --- |
| the id of a topic | the topic's name; an unknown topic needs a right on any name, because the request fails anyway |
| a batch of records or commands | the name of its topic, or the name of the actor of each command |
| a topic in another group than 0 | the spread topic of which it is a stream; a name without one stands for itself |
| an attempt | the name of its sink |
| a session | the token that opened it; ``streams/machine.py`` compares it |

An administrator may send every request. The one thing that it cannot do is append in the session of another token,
because the results of a session are only meant for its owner.

The gate of another group than 0 decides by the tokens in the state of group 0 on the same node, and by the names in the
state of its group. It raises UnavailableError while the state of group 0 may be too old (``node/token_age.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from viewstamp.errors import AccessDeniedError, StaleSessionError
from viewstamp.ids import GROUP_0, GroupId, SessionId, Stream, TopicId
from viewstamp.node.access import ANONYMOUS, Credentials, Gate
from viewstamp.streams.access import Access, TokenState
from viewstamp.streams.state import State
from viewstamp.wire.access import ANYONE, PAYLOAD, Need, Right
from viewstamp.wire.archive_requests import ListRuns
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.commands import Command
from viewstamp.wire.requests import REQUESTS, ListTopics, OpenSession
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spread_requests import LoseStream
from viewstamp.wire.staged import decode_commit, decode_fields, entries_of

__all__ = ["StateGate", "not_owned"]

_DIRECTORY = "directory"
"""The owner of the sessions of a caller that has proved that it can read a member's data directory."""
_NEEDS: dict[Kind, Need] = {
    kind: row.needs for row in REQUESTS.values() if (kind := row.payload or row.record) is not None
} | {Kind.OPEN_SESSION: OpenSession.needs, Kind.LOSE_SEALED_STREAM: LoseStream.needs}
"""By the kind of the batch that a request becomes."""
_IN_SESSIONS: frozenset[Kind] = frozenset({Kind.RECORDS, Kind.COMMANDS, Kind.STAGED, Kind.FENCE})
"""The kinds of batches whose outcome a session keeps."""


class StateGate:
    """The gate of one state machine; the class satisfies ``node.access.Gate``.

    Invariants:
      * ``access`` is that of the present state of group 0
    """

    def __init__(self, state: State) -> None:
        self.access: Access = state.access
        self.check_known: Callable[[], None] = _is_known
        """Raises UnavailableError if the tokens may be too old to permit a request by them; never in group 0."""
        self._state = state
        self._group = GROUP_0
        self._home = self
        """The gate of group 0."""
        self._followers: list[StateGate] = []

    def follow(self, group: GroupId, group_0: Gate, check_known: Callable[[], None]) -> None:
        """Become the gate of another group; see :class:`Gate`."""
        assert isinstance(group_0, StateGate), "all groups of a node have the same kind of state machine"
        self._group, self._home, self.access, self.check_known = group, group_0, group_0.access, check_known
        group_0._followers.append(self)

    def adopt(self, state: State) -> None:
        """Decide by another state from now on."""
        self._state = state
        if self._home is self:
            for gate in (self, *self._followers):
                gate.access = state.access

    @property
    def ends_everywhere(self) -> bool:
        """Whether each later leader has applied the present end of a token before it admits anything.

        In group 0 the end precedes everything that such a leader admits. A leader of another group follows group 0 by
        itself, so it may still lack an end that is applied here.
        """
        return self._home is self

    def refresh(self, credentials: Credentials) -> None:
        """Derive the owner and the roles of a caller from the present state."""
        access = self.access
        if credentials.version == access.version:
            return
        token = self._token(credentials)
        is_alive = token is not None and not token.ended
        credentials.version = access.version
        credentials.owner = token.id if token is not None else _DIRECTORY if credentials.directory else ""
        credentials.roles = token.roles if token is not None and is_alive else ()
        credentials.is_administrator = bool(credentials.directory) or (
            token is not None and is_alive and token.is_administrator
        )
        credentials.is_alive = is_alive or credentials.is_administrator
        credentials.granted = set()

    def _token(self, credentials: Credentials) -> TokenState | None:
        """Return the token of which the caller has a valid secret, even an ended one; None = there is none."""
        token = self.access.tokens.get(credentials.token)
        return token if token is not None and token.has_secret(credentials.hash) else None

    def owner(self, credentials: Credentials) -> str:
        """Return the owner of the sessions that the caller opens."""
        self.refresh(credentials)
        return credentials.owner

    def who(self, credentials: Credentials) -> str:
        """Return the caller's names for the audit log. A directory is the first, because its rights need no token."""
        token = self._token(credentials)
        names = [f"directory of {credentials.directory}"] * bool(credentials.directory)
        names += [f"token {token.name} ({token.id})"] if token is not None and not token.ended else []
        names += [f"certificate {credentials.certificate}"] * bool(credentials.certificate)
        return ", ".join(names) or ANONYMOUS

    # Checks. Each is made only while access control is on.

    def check(self, credentials: Credentials, asked: RequestBody) -> None:
        """Check a request that is no batch for the log. Raises AccessDeniedError."""
        need = asked.needs
        if need is ANYONE:
            return
        self.check_known()
        self.refresh(credentials)
        self._check(credentials, need, self._names(need, getattr(asked, need.on) if need.on else ""))

    def check_batch(self, credentials: Credentials, batch: Batch) -> None:
        """Check a request that is a record without a session.

        Raises:
          AccessDeniedError: the caller lacks the right.
          RequestError: the record cannot be read.
        """
        self.check_known()
        self.refresh(credentials)
        need = _NEEDS[batch.kind]
        given: str | int = ""
        if need.on:
            (given,) = decode_fields(batch, **{need.on: int if need.of == "attempt" else str})
        names = self._names(need, given)
        self._check(credentials, need, names)
        if batch.kind is Kind.COMMIT:
            parts = decode_commit(batch).parts
            for topic in {entry.topic for _, entries in parts for entry in entries_of(entries)}:
                self.check_topic(credentials, TopicId(topic))

    def check_sender(self, credentials: Credentials, batch: Batch) -> None:
        """Check that a batch that is not admitted, for lack of room, may be answered; as :meth:`Gate.check_sender`."""
        if batch.kind not in _IN_SESSIONS:
            self.check_batch(credentials, batch)
            return
        self.refresh(credentials)
        session = self._state.sessions.find(batch.session)
        if credentials.owner != session.owner and not (batch.kind is Kind.FENCE and credentials.is_administrator):
            raise not_owned(session.id)

    def check_topic(self, credentials: Credentials, topic: TopicId) -> None:
        """Check whether the caller may append to a topic, and note it in ``granted``. Raises AccessDeniedError."""
        found = self._state.topics.get(topic)
        self._check(credentials, _NEEDS[Kind.RECORDS], [self._topic_name(found.name)] if found is not None else [])
        if found is not None:
            credentials.granted.add(topic)

    def check_attempt(self, credentials: Credentials, attempt: int) -> None:
        """Check whether the caller may write to the sink of an attempt. Raises AccessDeniedError."""
        need = _NEEDS[Kind.SEAL_ATTEMPT]
        self._check(credentials, need, self._names(need, attempt))

    def check_commands(self, credentials: Credentials, commands: Iterable[Command]) -> None:
        """Check whether the caller may call the actors of these commands. Raises AccessDeniedError."""
        self._check(credentials, _NEEDS[Kind.COMMANDS], list(dict.fromkeys(command.actor for command in commands)))

    def check_alive(self, credentials: Credentials) -> None:
        """Check whether the caller has any right. Raises AccessDeniedError."""
        if not credentials.is_alive:
            raise self._denied(credentials, Need(*Right), "")

    def sees(self, credentials: Credentials, asked: type[RequestBody], name: str | None) -> bool:
        """Return whether the answer to such a request shows the caller a name; None = any name."""
        self.refresh(credentials)
        if name is not None and asked in (ListTopics, ListRuns):
            name = self._topic_name(name)
        return not self.access.is_on or self._has(credentials, asked.needs, name)

    def _topic_name(self, name: str) -> str:
        """Return the name of which the caller needs the right for a topic of this group."""
        if self._home is self:
            return name
        return self._home._state.spread.by_stream.get(Stream(self._group, name), name)

    def _names(self, need: Need, given: str | int) -> list[str]:
        """Return the names for which the right is needed; [] = a right on any name is enough."""
        assert need.on != PAYLOAD, "the machine checks batches of records and commands"
        match need.of, given:
            case "topic", int():
                topic = self._state.topics.get(TopicId(given))
                return [self._topic_name(topic.name)] if topic is not None else []
            case "topic", str():
                return [self._topic_name(given)]
            case "attempt", int():
                attempt = self._state.staging.attempts.get(given)
                return [self._state.staging.user_sink(attempt)] if attempt is not None else []
            case "", _:
                return []
            case _:
                return [str(given)]

    def _check(self, credentials: Credentials, need: Need, names: list[str]) -> None:
        for name in names or [""]:
            if not self._has(credentials, need, name if names else None):
                raise self._denied(credentials, need, name)

    def _has(self, credentials: Credentials, need: Need, name: str | None) -> bool:
        """Return whether the caller has the right on a name; None = on any."""
        return credentials.is_administrator or any(
            role.right in need.rights and (name is None or role.covers(name)) for role in credentials.roles
        )

    def _denied(self, credentials: Credentials, need: Need, name: str) -> AccessDeniedError:
        token = self._token(credentials)
        if token is not None and token.ended:
            state = "was revoked" if not token.expires or token.ended < token.expires else "has expired"
            return AccessDeniedError(
                f"token {token.id} ({token.name}) {state}; nothing was done",
                remedy="ask an administrator for another token: viewstamp token create",
            )
        right = " or ".join(need.rights)
        lacking = f"the right {right}{f' on {name!r}' if name else ''}"
        if token is not None:
            of = "" if need.is_administrative else f":{name or 'NAME'}"
            return AccessDeniedError(
                f"token {token.id} ({token.name}) lacks {lacking}; nothing was done",
                remedy=f"use a token with the role {need.rights[0]}{of}",
            )
        if credentials.token:
            return AccessDeniedError(
                f"token {credentials.token} is unknown here, or its secret is not valid; {lacking} is needed",
                remedy="check the token with `viewstamp token list`; after a rotation use its new secret",
            )
        return AccessDeniedError(
            f"the request has no token; {lacking} is needed",
            remedy="give one by VIEWSTAMP_TOKEN, --token-file or ClientOptions(token=...); on a machine with a data"
            " directory of the cluster, --dir is enough",
        )


def _is_known() -> None:
    """Do nothing, because the tokens are in the state that decides."""


def not_owned(session: SessionId) -> StaleSessionError:
    """Return the error for a caller that uses the session of another one."""
    return StaleSessionError(
        f"session {session} was opened with another token",
        remedy="open a new session; ask for outcomes with the token that opened it, or as an administrator",
    )
