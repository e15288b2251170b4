"""Tokens in the replicated state: their rights, their end, and the sessions that belong to them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.actors import Counter, call, commands
from tests.streams.log import (
    Log,
    begin,
    configure_topic,
    create_topic,
    fence,
    pieces,
    records,
    restored,
    staged,
    trim_topic,
)
from viewstamp.errors import AccessDeniedError, OutdatedCodeError, RequestError, StaleSessionError, UnavailableError
from viewstamp.ids import GroupId, NodeId, SessionId
from viewstamp.node.access import ANONYMOUS, Credentials
from viewstamp.node.state_machine import Accepted, Answered, AuditQuery, CommandResults, Placement, TokensQuery, Waiting
from viewstamp.streams import Streams
from viewstamp.streams.cut import _VERSION_WITHOUT_TOKENS
from viewstamp.wire.access import Right, Token, TokenRole, audit_record, opening_record
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.placing import encode_hosted, encode_place
from viewstamp.wire.requests import REQUESTS, DescribeTopic, ListTopics, ReadTopic, RequestBody
from viewstamp.wire.spread_requests import ReadOrdered
from viewstamp.wire.spreading import encode_spread
from viewstamp.wire.token_requests import ListAudit


def token(number: int) -> Token:
    return Token(f"{number:012x}", bytes([number]) * 32)


def create(made: Token, *roles: str, name: str = "", expire: int = 0, by: str = "") -> Batch:
    fields: dict[str, object] = {
        "token": made.id,
        "name": name or f"t{made.id[-1]}",
        "roles": list(roles),
        "hash": made.hash,
        "expire_seconds": expire,
    }
    return build_batch([msgpack.packb(fields | ({"by": by} if by else {}))], kind=Kind.CREATE_TOKEN)


def rotate(made: Token, rotation: int, keep: int = 0) -> Batch:
    fields = {"token": made.id, "rotation": rotation, "hash": made.hash, "keep_seconds": keep}
    return build_batch([msgpack.packb(fields)], kind=Kind.ROTATE_TOKEN)


def revoke(made: Token, *, only_old: bool = False) -> Batch:
    return build_batch([msgpack.packb({"token": made.id, "only_old": only_old})], kind=Kind.REVOKE_TOKEN)


def opening(made: Token | None) -> Batch:
    return build_batch([opening_record(made.id if made is not None else "")], kind=Kind.OPEN_SESSION)


ADMIN, WRITER, READER = token(1), token(2), token(3)


class Guarded:
    """A leader's log with access control on, an administrator, and a token that may append to orders*."""

    def __init__(self) -> None:
        self.log = Log(Streams())
        self.machine = self.log.machine
        self.orders = self.log.topic("orders")
        self.bills = self.log.topic("bills")
        self.log.run(create(WRITER, "append:orders*"))
        self.log.run(create(READER, "read:orders*"))
        self.log.run(create(ADMIN, "administer"))

    def by(self, made: Token) -> Credentials:
        return Credentials(made.text)

    def session(self, made: Token | None) -> int:
        result = self.log.run(opening(made))
        assert isinstance(result, dict)
        return int(str(result["session"]))

    def admit(self, made: Token | None, batch: Batch) -> Any:
        return self.machine.admit(batch, Credentials(made.text if made is not None else ""))

    def append(self, made: Token, topic: int, session: int, sequence: int) -> Placement:
        batch = records(topic, session, sequence)
        admission = self.machine.admit(batch, self.by(made))
        assert isinstance(admission, Accepted)
        self.log._append(batch, admission.first_position)
        result = self.log.apply()
        assert isinstance(result, Placement)
        return result


def test_without_an_administrators_token_everything_is_permitted() -> None:
    log = Log(Streams())
    log.run(create(WRITER, "append:orders"))
    assert not log.machine.gate.access.is_on
    log.machine.admit(create_topic("bills"), Credentials())


def test_a_token_may_append_to_the_topics_that_its_role_covers_and_to_no_other() -> None:
    guarded = Guarded()
    session = guarded.session(WRITER)
    assert guarded.append(WRITER, guarded.orders, session, 1).first_position == 1
    with pytest.raises(AccessDeniedError, match="lacks the right append on 'bills'"):
        guarded.admit(WRITER, records(guarded.bills, session, 2))
    assert guarded.append(WRITER, guarded.orders, session, 2).first_position == 2


def test_records_without_a_session_need_the_right_that_the_table_names() -> None:
    guarded = Guarded()
    assert isinstance(guarded.admit(WRITER, create_topic("orders-2")), Accepted)
    for batch in (create_topic("bills-2"), configure_topic("orders", retain_bytes=1), trim_topic("orders", 1)):
        with pytest.raises(AccessDeniedError):
            guarded.admit(WRITER, batch)
    for made in (READER, None, token(9), WRITER._replace(secret=bytes(32))):
        with pytest.raises(AccessDeniedError):
            guarded.admit(made, create_topic("orders-2"))
    for batch in (create(token(8), "read"), rotate(token(1), 1), revoke(ADMIN), trim_topic("orders", 1)):
        with pytest.raises(AccessDeniedError):
            guarded.admit(WRITER, batch)
        assert isinstance(guarded.admit(ADMIN, batch), Accepted)


def test_a_revoked_token_may_do_nothing_and_still_gets_its_receipts() -> None:
    guarded = Guarded()
    session = guarded.session(WRITER)
    receipt = guarded.append(WRITER, guarded.orders, session, 1)
    credentials = guarded.by(WRITER)
    guarded.append(WRITER, guarded.orders, session, 2)
    assert isinstance(guarded.machine.admit(records(guarded.orders, session, 1), credentials), Answered)
    guarded.log.run(revoke(WRITER))
    for sequence in (3, 4):  # The second one leaves a gap, which the token cannot fill any more.
        with pytest.raises(AccessDeniedError, match="was revoked"):
            guarded.machine.admit(records(guarded.orders, session, sequence), credentials)
    retry = guarded.machine.admit(records(guarded.orders, session, 1), credentials)
    assert retry == Answered(receipt)
    assert guarded.machine.admit(fence(session, 1), credentials) == Answered(receipt)
    assert guarded.machine.admit(fence(session, 3), credentials) == Answered(None)
    with pytest.raises(AccessDeniedError):
        guarded.machine.admit(opening(WRITER), credentials)


def test_a_late_copy_of_its_creation_does_not_bring_a_token_back() -> None:
    guarded = Guarded()
    guarded.log.run(create(WRITER, "append:orders*"))  # The same request again changes nothing.
    guarded.log.run(revoke(WRITER))
    with pytest.raises(RequestError):
        guarded.log.run(create(WRITER, "append:orders*"))
    with pytest.raises(AccessDeniedError):
        guarded.admit(WRITER, create_topic("orders-2"))


def test_a_token_expires_by_log_time_and_the_leader_writes_a_record_for_it() -> None:
    guarded = Guarded()
    made = token(4)
    guarded.log.run(create(made, "append", expire=60))
    guarded.log.seconds = 59
    assert isinstance(guarded.admit(made, create_topic("x")), Accepted)
    now = 62_000_000
    batch = guarded.machine.upkeep(guarded.log.seconds * 1_000_000, now)
    assert batch is not None
    assert batch.kind is Kind.EXPIRE_SESSIONS
    guarded.log.seconds = 62
    guarded.log.run(batch)
    with pytest.raises(AccessDeniedError, match="has expired"):
        guarded.admit(made, create_topic("x"))
    assert guarded.machine.upkeep(now, now) is None


def test_after_a_rotation_both_secrets_are_valid_until_the_older_one_ends() -> None:
    guarded = Guarded()
    new = WRITER._replace(secret=bytes(32))
    guarded.log.run(rotate(new, 1, keep=60))
    for made in (WRITER, new):
        assert isinstance(guarded.admit(made, create_topic("orders-2")), Accepted)
    guarded.log.run(rotate(new, 1, keep=60))  # The same request again.
    guarded.log.seconds = 61
    guarded.log.run(configure_topic("orders", retain_bytes=9))
    assert isinstance(guarded.admit(new, create_topic("orders-2")), Accepted)
    with pytest.raises(AccessDeniedError, match="its secret is not valid"):
        guarded.admit(WRITER, create_topic("orders-2"))
    with pytest.raises(RequestError, match="rotated 1 times"):
        guarded.log.run(rotate(WRITER, 1))  # A late copy of another first rotation.


def test_an_older_secret_can_be_ended_alone() -> None:
    guarded = Guarded()
    new = WRITER._replace(secret=bytes(32))
    guarded.log.run(rotate(new, 1, keep=60))
    guarded.log.run(revoke(WRITER, only_old=True))
    assert isinstance(guarded.admit(new, create_topic("orders-2")), Accepted)
    with pytest.raises(AccessDeniedError):
        guarded.admit(WRITER, create_topic("orders-2"))


def test_a_session_is_of_no_use_to_another_token() -> None:
    guarded = Guarded()
    other = token(5)
    guarded.log.run(create(other, "append"))
    session = guarded.session(WRITER)
    guarded.append(WRITER, guarded.orders, session, 1)
    for made in (other, ADMIN, None):
        with pytest.raises(StaleSessionError, match="another token"):
            guarded.admit(made, records(guarded.orders, session, 2))
    for made in (other, None):
        with pytest.raises(StaleSessionError):
            guarded.admit(made, fence(session, 1))
    assert isinstance(guarded.admit(ADMIN, fence(session, 1)), Answered)


def test_a_session_that_was_opened_without_a_token_ends_when_access_control_begins() -> None:
    log = Log(Streams())
    topic, session = log.topic(), log.session()
    receipt = log.append(topic, session, 1)
    log.run(create(ADMIN, "administer"))
    anyone = Credentials()
    assert log.machine.admit(records(topic, session, 1), anyone) == Answered(receipt)
    with pytest.raises(AccessDeniedError, match="the request has no token"):
        log.machine.admit(records(topic, session, 2), anyone)
    assert log.machine.admit(fence(session, 2), anyone) == Answered(None)


def test_the_outcome_of_a_batch_in_the_log_is_not_guessed_for_an_ended_token() -> None:
    guarded = Guarded()
    session = guarded.session(WRITER)
    guarded.log.propose(records(guarded.orders, session, 1))
    guarded.log.propose(revoke(WRITER))
    # Neither is applied, so the token is still valid by the applied state.
    assert guarded.admit(WRITER, records(guarded.orders, session, 1)) == Waiting()
    guarded.log.apply()
    guarded.log.apply()
    receipt = guarded.admit(WRITER, records(guarded.orders, session, 1))
    assert isinstance(receipt, Answered)
    assert isinstance(receipt.result, Placement)


def test_a_proof_of_a_data_directory_is_as_good_as_an_administrators_token() -> None:
    guarded = Guarded()
    credentials = Credentials()
    with pytest.raises(AccessDeniedError):
        guarded.machine.admit(trim_topic("orders", 1), credentials)
    credentials.prove_directory("n1")
    assert isinstance(guarded.machine.admit(trim_topic("orders", 1), credentials), Accepted)
    assert guarded.machine.gate.who(credentials) == "directory of n1"
    with_token = guarded.by(WRITER)
    with_token.prove_directory("n1")
    assert guarded.machine.gate.who(with_token).startswith("directory of n1, token ")


def requests() -> list[RequestBody]:
    return [
        ReadTopic(topic=1, position=1, bytes_max=1, applied_index=0, wait=0),
        DescribeTopic(name="orders", stale=False),
    ]


def test_reads_need_the_right_on_the_topic() -> None:
    guarded = Guarded()
    gate = guarded.machine.gate
    read, describe = requests()
    gate.check(guarded.by(READER), read)
    gate.check(guarded.by(READER), describe)
    gate.check(guarded.by(WRITER), describe)
    for made, asked in ((WRITER, read), (READER, ListAudit(since=0))):
        with pytest.raises(AccessDeniedError):
            gate.check(guarded.by(made), asked)
    assert gate.sees(guarded.by(READER), ListTopics, "orders-7")
    assert not gate.sees(guarded.by(READER), ListTopics, "bills")
    gate.check(guarded.by(ADMIN), ListAudit(since=0))


ROLES = st.builds(
    lambda right, name, star: TokenRole(right, "*" if right is Right.ADMINISTER else name + "*" * star or "*"),
    st.sampled_from(list(Right)),
    st.sampled_from(["o", "orders", "bills", "b", ""]),
    st.booleans(),
)


@given(st.lists(ROLES, min_size=1, max_size=4), st.sampled_from(["orders", "bills", "order"]))
def test_a_right_is_granted_exactly_if_one_role_gives_it(roles: list[TokenRole], name: str) -> None:
    """Compares the gate with the definition, for each request that names its topic."""
    machine = Log(Streams()).machine
    log = Log(machine)
    log.run(create(ADMIN, "administer"))
    log.run(create(WRITER, *map(str, roles)))
    for asked in (each for each in REQUESTS.values() if each.needs.of == "topic" and each.needs.on == "name"):
        rights = {*asked.needs.rights, Right.ADMINISTER}
        fitting = [role for role in roles if role.right in rights]
        expected = any(
            role.pattern == name or (role.pattern[-1:] == "*" and name[: len(role.pattern) - 1] == role.pattern[:-1])
            for role in fitting
        )
        assert machine.gate.sees(Credentials(WRITER.text), asked, name) == expected


def test_the_audit_log_has_who_asked_for_what() -> None:
    guarded = Guarded()
    by = {"by": "token ops (000000000001)"}
    guarded.log.run(configure_topic("orders", retain_bytes=5, **by))
    guarded.log.run(trim_topic("bills", 1))
    guarded.log.run(build_batch([audit_record("members change", "add n4", by["by"])], kind=Kind.AUDIT))
    entries = guarded.machine.query(AuditQuery(0))
    assert [(entry[2], entry[3]) for entry in entries[-3:]] == [
        (by["by"], "topic configure"),
        ("", "topic trim"),
        (by["by"], "members change"),
    ]
    assert [entry[3] for entry in entries[:3]] == ["token create"] * 3
    assert guarded.machine.query(AuditQuery(int(str(entries[-1][0])))) == entries[-1:]


def test_tokens_and_owners_are_in_snapshots_and_hashes_in_no_answer() -> None:
    guarded = Guarded()
    session = guarded.session(WRITER)
    guarded.log.run(revoke(READER))
    other = restored(guarded.machine)
    assert other.digest() == guarded.machine.digest()
    other.begin_leading()
    assert isinstance(other.admit(records(guarded.orders, session, 1), guarded.by(WRITER)), Accepted)
    with pytest.raises(AccessDeniedError):
        other.admit(create_topic("orders-2"), guarded.by(READER))
    with pytest.raises(StaleSessionError):
        other.admit(records(guarded.orders, session, 1), guarded.by(ADMIN))
    assert other.query(TokensQuery()) == guarded.machine.query(TokensQuery())
    assert other.query(AuditQuery(0)) == guarded.machine.query(AuditQuery(0))
    answers = f"{other.query(TokensQuery())} {other.query(AuditQuery(0))}"
    assert WRITER.hash.hex() not in answers
    assert WRITER.secret.hex() not in answers


def test_a_state_without_tokens_is_written_for_the_release_before() -> None:
    def version(machine: Streams) -> int:
        _, content = msgpack.unpackb(next(pieces(machine.begin_snapshot())), strict_map_key=False)
        return int(content[0])

    log = Log(Streams())
    session = log.session()
    assert version(log.machine) == _VERSION_WITHOUT_TOKENS
    assert len(log.machine._state.sessions.by_id[SessionId(session)].image()) == 5
    assert version(Guarded().machine) == _VERSION_WITHOUT_TOKENS + 1
    with pytest.raises(OutdatedCodeError):
        Streams().prepare([msgpack.packb(["state", [99, 0, 0]])])


def test_commands_need_the_right_to_call_their_actor() -> None:
    log = Log(Streams({"counter": Counter, "other": Counter}))
    log.run(create(WRITER, "call:counter"))
    log.run(create(ADMIN, "administer"))
    result = log.run(opening(WRITER))
    assert isinstance(result, dict)
    session = int(str(result["session"]))
    credentials = Credentials(WRITER.text)
    for actors in (["other"], ["counter", "other"]):
        with pytest.raises(AccessDeniedError, match="the right call on 'other'"):
            log.machine.admit(commands(session, 1, *(call("add", 1, actor=actor) for actor in actors)), credentials)
    batch = commands(session, 1, call("add", 1))
    admission = log.machine.admit(batch, credentials)
    assert isinstance(admission, Accepted)
    log._append(batch, admission.first_position)
    applied = log.apply()
    assert isinstance(applied, CommandResults)
    log.run(revoke(WRITER))
    retry = log.machine.admit(commands(session, 1, call("add", 1)), credentials)
    assert retry == Answered(CommandResults(applied.receipt, None))  # The results are data, the receipt is not.


def test_a_change_of_tokens_is_seen_by_a_connection_at_its_next_request() -> None:
    guarded = Guarded()
    credentials = guarded.by(WRITER)
    session = guarded.session(WRITER)
    guarded.machine.admit(records(guarded.orders, session, 1), credentials)
    assert credentials.granted == {guarded.orders}
    guarded.log.run(create(token(7), "read"))
    with pytest.raises(AccessDeniedError):
        guarded.machine.admit(records(guarded.bills, session, 2), credentials)
    assert credentials.granted == set()
    assert guarded.machine.gate.who(Credentials()) == ANONYMOUS


def test_a_fork_is_in_the_audit_log_and_keeps_the_tokens() -> None:
    guarded = Guarded()
    origin = {"from": "old", "cluster": "new", "end": 9}
    guarded.log.enter(build_batch([msgpack.packb(origin)], kind=Kind.FORK))
    forks = [entry[2:] for entry in guarded.machine.query(AuditQuery(0)) if "fork" in entry[3]]
    assert forks == [["owner of the files", "fork", "up to index 8 of cluster old"]]
    with pytest.raises(AccessDeniedError):
        guarded.admit(READER, create_topic("orders-2"))


def test_staging_needs_the_right_on_the_sink_of_the_attempt() -> None:
    """Otherwise a writer of the topic could spoil the attempts of another sink, whose numbers can be guessed."""
    guarded = Guarded()
    session = guarded.session(WRITER)
    own, others = (guarded.log.run(begin(sink)) for sink in ("orders-sink", "etl"))
    assert isinstance(own, dict)
    assert isinstance(others, dict)
    guarded.admit(WRITER, staged(own["attempt"], guarded.orders, session, 1))
    with pytest.raises(AccessDeniedError, match="'etl'"):
        guarded.admit(WRITER, staged(others["attempt"], guarded.orders, session, 2))


def test_names_of_tokens_are_judged_alike_by_all_versions_of_unicode() -> None:
    """U+1FAE9 came with Unicode 16. Members with different versions of Python apply the same record."""
    guarded = Guarded()
    guarded.log.run(create(token(8), "append:team-\U0001fae9", name="team-\U0001fae9"))
    assert token(8).id in guarded.machine.gate.access.tokens
    for name in ("a\nb", "a\x9bb", "a\u202eb"):
        with pytest.raises(RequestError, match="cannot be named"):
            guarded.log.run(create(token(9), "read", name=name))
        with pytest.raises(RequestError, match="no role"):
            guarded.log.run(create(token(9), f"read:{name}"))


class GuardedGroup(Guarded):
    """A group with a stream of topic orders-all, on a node whose state of group 0 has the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.home = self.log
        result = self.home.run(encode_place({NodeId("n1"): "a:1"}, ["s1"], since=0))
        assert isinstance(result, dict)
        group = GroupId(result["group"]["id"])
        self.home.run(encode_hosted(group, NodeId("n1"), "0" * 16))
        self.home.run(encode_spread("orders-all", [group]))
        self.log = Log(Streams())
        self.machine = self.log.machine
        self.stream, self.other = self.log.topic("orders-all.1"), self.log.topic("bills.1")
        self.is_known = True
        self.machine.follow(group, self.home.machine)
        self.machine.gate.follow(group, self.home.machine.gate, self.check_known)

    def check_known(self) -> None:
        if not self.is_known:
            raise UnavailableError("the tokens may be too old", remedy="try again")

    def admit_first(self, made: Token, session: int, topic: int) -> object:
        return self.machine.admit(records(topic, session, 1), self.by(made))


def test_a_stream_needs_the_right_on_its_topic_by_the_tokens_of_group_0() -> None:
    group = GuardedGroup()
    one, all_of_it, stream = token(4), token(5), token(6)
    group.home.run(create(one, "append:orders", "read:orders"))
    group.home.run(create(all_of_it, "append:orders-all", "read:orders-all"))
    group.home.run(create(stream, "append:orders-all.1", "read:orders-all.1"))
    for made, is_permitted in ((one, False), (all_of_it, True), (stream, False), (ADMIN, True), (READER, False)):
        session = group.session(made)
        asked = [
            lambda made=made, session=session: group.admit_first(made, session, group.stream),
            lambda made=made: group.machine.gate.check(group.by(made), DescribeTopic(name="orders-all.1", stale=True)),
            lambda made=made: group.machine.gate.check(
                group.by(made), ReadTopic(topic=group.stream, position=1, bytes_max=1, applied_index=0, wait=0)
            ),
        ]
        for each in asked[: 1 if made is READER else None]:
            with nullcontext() if is_permitted else pytest.raises(AccessDeniedError):
                each()
        assert group.machine.gate.sees(group.by(made), ListTopics, "orders-all.1") == (is_permitted or made is READER)
    with pytest.raises(AccessDeniedError):
        group.admit_first(all_of_it, group.session(all_of_it), group.other)
    gate, name = group.machine.gate, "orders-all.1"
    for made, is_permitted in ((all_of_it, False), (stream, True)):  # Here it is the name of a spread topic.
        ordered = ReadOrdered(name=name, stream=1, position=1, bytes_max=1, needed=0, wait=0)
        with nullcontext() if is_permitted else pytest.raises(AccessDeniedError):
            gate.check(group.by(made), ordered)
    assert Streams().gate.access is not gate.access
    prepared = group.home.machine.prepare(pieces(group.home.machine.begin_snapshot()))
    group.home.machine.stop_leading()
    group.home.machine.adopt(prepared)
    assert gate.access is group.home.machine.gate.access, "a snapshot of group 0 was installed"


def test_a_group_permits_nothing_by_tokens_that_may_be_too_old_and_still_answers_retries() -> None:
    group = GuardedGroup()
    session = group.session(WRITER)
    receipt = group.append(WRITER, group.stream, session, 1)
    group.is_known = False
    repeated = group.admit_first(WRITER, session, group.stream)
    assert isinstance(repeated, Answered)
    assert repeated.result == receipt
    for batch in (records(group.stream, session, 2), opening(WRITER)):
        with pytest.raises(UnavailableError, match="too old"):
            group.admit(WRITER, batch)
    with pytest.raises(UnavailableError, match="too old"):
        group.machine.gate.check(group.by(WRITER), DescribeTopic(name="orders-all.1", stale=True))
    group.is_known = True
    assert group.append(WRITER, group.stream, session, 2).first_position == 2


def test_the_outcome_of_a_batch_of_an_ended_token_is_fenced_in_a_group() -> None:
    """A later leader of the group may lack the end of the token, and would admit a late copy of the batch."""
    group = GuardedGroup()
    session = group.session(WRITER)
    group.home.run(revoke(WRITER))
    with pytest.raises(AccessDeniedError, match="was revoked"):
        group.admit_first(WRITER, session, group.stream)
    assert isinstance(group.admit(WRITER, fence(session, 1)), Accepted)
    group.log.enter(fence(session, 1))
    late = group.machine.admit(records(group.stream, session, 1))
    assert isinstance(late, Answered)
    assert late.result is None, "never applied"
