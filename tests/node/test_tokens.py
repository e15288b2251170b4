"""Tokens at the port of a node: each request is denied to a caller without the right, and no evidence can be reused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.caller import Caller, body_of, call
from tests.node.group import SMALL, Group, wait_for
from tests.wire.test_requests import a_body
from viewstamp.client import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.sinks import Attempt
from viewstamp.errors import AccessDeniedError, OutcomeUnknownError, UnavailableError
from viewstamp.ids import NodeId, Sequence, SessionId, TopicId
from viewstamp.node.service import FROM_CLIENTS
from viewstamp.wire.access import ANYONE
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.identity_proof import administrator_proof, identity_proof
from viewstamp.wire.requests import REQUESTS, AskOutcome, ListTopics
from viewstamp.wire.token_requests import ProveDirectory


class Guarded:
    """A group with a topic, access control, and an administrator's client."""

    def __init__(self, group: Group, first: Client, admin: Client, text: str) -> None:
        self.group = group
        self.session = first._sender.session.id
        """The session of a client that appended before access control began."""
        self.admin = admin
        self.admin_token = text

    def client(self, token: str, timeout: float = 10.0) -> Client:
        return self.group.client(timeout=timeout, token=token)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with Group(tmp_path, 3) as group:
        await group.run()
        first = group.client()
        await first.create_topic("orders")
        await first.append("orders", b"a")
        _, text = await first.create_token("ops", ["administer"])
        yield Guarded(group, first, group.client(seed=2, timeout=10.0, token=text), text)


def payload_of(kind: int, session: SessionId) -> bytes:
    payload = REQUESTS[kind].payload
    if payload is None:
        return b""
    return bytes(build_batch([b"x"], kind=payload, topic=TopicId(1), session=session, sequence=Sequence(2)).buffer)


async def denial(caller: Caller, kind: int, session: SessionId) -> str:
    body = (await caller.ask(kind, payload_of(kind, session), **a_body(REQUESTS[kind]))).body
    return str(body.get("error", "OK"))


@pytest.mark.slow
async def test_every_request_is_denied_to_a_caller_without_a_token(guarded: Guarded) -> None:
    """A request that the checks leave out would be open to everyone."""
    leader = (await guarded.group.leader()).options.node
    needy = {kind for kind, (row, _) in FROM_CLIENTS.items() if row.needs is not ANYONE and row is not AskOutcome}
    async with call(guarded.group, leader) as caller:
        found = {REQUESTS[kind].__name__: await denial(caller, kind, guarded.session) for kind in needy}
        # The client opened the session before access control began, without a token. So no token owns the session.
        assert set(found.values()) == {"AccessDeniedError"}, found
        status = (await caller.ask(FrameKind.STATUS)).body["status"]
        assert "leader" in status
        assert not status.keys() & {"state", "log_bytes", "actors", "refused_by"}


async def test_a_list_shows_only_what_the_token_may_use(guarded: Guarded) -> None:
    await guarded.admin.create_topic("bills")
    _, text = await guarded.admin.create_token("reader", ["read:bills"])
    reader = guarded.client(text)
    assert [topic.name for topic in await reader.list_topics()] == ["bills"]
    assert [topic.name for topic in await guarded.admin.list_topics()] == ["orders", "bills"]
    with pytest.raises(AccessDeniedError):
        await reader.describe_topic("orders")


async def test_a_read_that_waits_is_denied_once_its_token_is_revoked(guarded: Guarded) -> None:
    _, text = await guarded.admin.create_token("reader", ["read"])
    reader = guarded.client(text)
    seen: list[bytes] = []

    async def follow() -> None:
        async for record in reader.read("orders", 1, follow=True):
            seen.append(record.value)

    following = asyncio.ensure_future(follow())
    await wait_for(lambda: bool(seen) or None, lambda: "nothing was read")
    await guarded.admin.revoke_token("reader")
    await guarded.group.caught_up()
    await guarded.admin.append("orders", b"secret")
    with pytest.raises(AccessDeniedError, match="was revoked"):
        await asyncio.wait_for(following, 10)
    assert seen == [b"a"]


async def test_a_backup_is_denied_to_a_revoked_token_by_a_member_that_lags(guarded: Guarded) -> None:
    """The member has the token when the request arrives, and the revocation before it may answer."""
    group, leader = guarded.group, (await guarded.group.leader()).options.node
    _, text = await guarded.admin.create_token("backup", ["administer"])
    behind = next(name for name in group.members if name != leader)
    await group.caught_up()
    group.isolate(behind)
    await guarded.admin.revoke_token("backup")
    async with call(group, behind, greet=False) as caller:
        await caller.hello(token=text)
        answer = asyncio.ensure_future(caller.refusal(FrameKind.DESCRIBE_LOG, stale=False))
        reading = group.nodes[behind].group.reading
        await wait_for(lambda: reading._replica.held_readers, lambda: f"no read waits: {group.status()}")
        group.heal()
        assert await answer == "AccessDeniedError"


async def test_a_node_without_a_majority_denies_nothing(guarded: Guarded) -> None:
    """The node may not have applied the token yet, so it asks the leader; without one the error is not a denial."""
    leader = (await guarded.group.leader()).options.node
    _, text = await guarded.admin.create_token("reader", ["read:bills"])
    others = [name for name in guarded.group.members if name != leader]
    await guarded.group.caught_up()
    await guarded.group.stop(leader, others[0])
    async with call(guarded.group, others[1], greet=False) as caller:
        await caller.hello(token=text)
        assert await caller.refusal(FrameKind.DESCRIBE_TOPIC, name="orders", stale=True) == "NoQuorumError"


async def test_a_denied_append_is_certain_even_if_its_first_answer_was_lost(guarded: Guarded) -> None:
    _, text = await guarded.admin.create_token("writer", ["append"])
    writer = guarded.client(text)
    await writer.append("orders", b"b")
    appends = [asyncio.ensure_future(writer.append("orders", b"%d" % number)) for number in range(50)]
    await asyncio.sleep(0)
    await guarded.admin.revoke_token("writer")
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert not any(isinstance(result, OutcomeUnknownError | UnavailableError) for result in results)
    kept = [record.value async for record in guarded.admin.read("orders", 3)]
    written = [b"%d" % number for number, result in enumerate(results) if not isinstance(result, Exception)]
    assert kept == written
    assert all(isinstance(result, AccessDeniedError) for result in results if isinstance(result, Exception))


async def proven(caller: Caller, proof: bytes, node: str = "n1") -> bool:
    caller.send(ProveDirectory.kind, ProveDirectory(node=node, proof=proof).to_map())
    return (await caller.ask(FrameKind.LIST_TOKENS)).kind == FrameKind.OK


async def test_a_proof_of_the_directory_is_good_for_one_connection_and_one_node(guarded: Guarded) -> None:
    incarnation = guarded.group.nodes[NodeId("n1")].group.incarnation
    async with call(guarded.group, "n1", greet=False) as caller:
        challenge = (await caller.hello(proves=True)).body["challenge"]
        proof = administrator_proof(incarnation, directory_of="n1", to="n1", challenge=challenge)
        assert await proven(caller, proof)
    for to in ("n1", "n2"):  # The same bytes again; then a proof that was made for n1, shown to n2.
        async with call(guarded.group, to, greet=False) as caller:
            other = (await caller.hello(proves=True)).body["challenge"]
            again = (
                proof if to == "n1" else administrator_proof(incarnation, directory_of="n1", to="n1", challenge=other)
            )
            assert not await proven(caller, again)
            # There is one attempt for each connection.
            right = administrator_proof(incarnation, directory_of="n1", to=to, challenge=other)
            assert not await proven(caller, right)
    async with call(guarded.group, "n1", greet=False) as caller:
        # A node answers challenges of clients. That answer must not be the proof.
        challenge = (await caller.hello(proves=True)).body["challenge"]
        assert not await proven(caller, identity_proof(incarnation, challenge))
    async with call(guarded.group, "n2", greet=False) as caller:
        # The proof is made with the directory of n1, and n2 accepts it.
        challenge = (await caller.hello(proves=True)).body["challenge"]
        assert await proven(caller, administrator_proof(incarnation, directory_of="n1", to="n2", challenge=challenge))
    async with call(guarded.group, "n1") as caller:
        assert not await proven(caller, administrator_proof(incarnation, directory_of="n1", to="n1", challenge=b""))


async def test_no_log_line_and_no_error_shows_a_secret(guarded: Guarded) -> None:
    _, text = await guarded.admin.create_token("reader", ["read:bills"])
    secret = text.rsplit("_")[-1]
    reader = guarded.client(text)
    with pytest.raises(AccessDeniedError) as denied:
        await reader.create_topic("x")
    options = ClientOptions(token=text)
    link = next(iter(reader._pool._connections.values()))._link
    assert link._opening is not None
    for shown in (denied.value.message, denied.value.remedy, options, link, ListTopics, guarded.group.status()):
        assert secret not in repr(shown)
    async with call(guarded.group, "n1", greet=False) as caller:
        refused = await caller.hello(token=text[:-1])
        assert refused.kind == FrameKind.REFUSED
        assert secret[:20] not in repr(refused.body)
    async with call(guarded.group, "n1", greet=False) as caller:
        refused = await caller.hello(token=text, version=99)
        assert secret not in repr(refused.body)
    assert secret[:20] not in repr(guarded.group.journal.lines)
    assert guarded.group.journal.of("! access denied")


async def test_administrative_actions_are_in_the_audit_log_with_the_token_that_asked(guarded: Guarded) -> None:
    await guarded.admin.configure_topic("orders", retain_bytes=1_000_000)
    await guarded.admin.transfer_leadership("n2")
    await guarded.admin.trim_topic("orders", 1)
    entries = await guarded.admin.list_audit()
    assert [entry.action for entry in entries] == ["token create", "topic configure", "leader transfer", "topic trim"]
    assert all(entry.by.startswith("token ops (") for entry in entries[1:])
    assert [entry.log_index for entry in entries] == sorted(entry.log_index for entry in entries)
    assert await guarded.admin.list_audit(since=entries[-1].log_time + 1) == []


async def test_a_sink_needs_the_right_to_append_to_its_topics_and_to_its_name(guarded: Guarded) -> None:
    _, whole = await guarded.admin.create_token("etl", ["append:orders", "append:etl"])
    _, half = await guarded.admin.create_token("half", ["append:etl"])
    for text, is_enough in ((whole, True), (half, False)):
        sink = guarded.client(text).sink("etl", owner=text[:16], run="r", reset=True)
        attempt = await sink.begin(0, "part")
        assert isinstance(attempt, Attempt)
        await attempt.stage_records("orders", [b"x"])
        if not is_enough:
            with pytest.raises(AccessDeniedError, match="append on 'orders'"):
                await attempt.seal()
            continue
        assert (await sink.commit(0, [await attempt.seal()])).ranges
    with pytest.raises(AccessDeniedError):
        await guarded.client(whole).sink("other", owner="o", run="r").begin(0, "part")
    with pytest.raises(AccessDeniedError):
        await guarded.client(whole).forget_sink("etl")


async def test_a_request_cannot_name_another_caller_for_the_audit_log(guarded: Guarded) -> None:
    leader = (await guarded.group.leader()).options.node
    async with call(guarded.group, leader, greet=False) as caller:
        await caller.hello(token=guarded.admin_token)
        await caller.ask(FrameKind.TRIM_TOPIC, name="orders", position=1, by="somebody else")
    assert (await guarded.admin.list_audit())[-1].by.startswith("token ops (")


def test_every_kind_of_record_that_a_client_proposes_has_a_need() -> None:
    from viewstamp.streams.gate import _NEEDS

    own = {Kind.MEMBERSHIP, Kind.EXPIRE_SESSIONS, Kind.FENCE, Kind.FORK, Kind.FORK_GROUPS}
    own |= {Kind.RESHARD_ACTOR, Kind.INSTANCES, Kind.RECOVER_ORDER, Kind.SET_ASIDE}
    own |= {
        Kind.ORDER,
        Kind.CONTEXT,
        Kind.HOSTED,
        Kind.LEFT_GROUP,
        Kind.PREPARE_RUN,
        Kind.COMMIT_RUN,
        Kind.DROP_RUN,
        Kind.FORGET_RUN,
        Kind.SEAL_STREAM,
        Kind.DROP_STREAM,
        Kind.SEALED_STREAM,
        Kind.PREPARE_KEYS,
        Kind.COMMIT_KEYS,
        Kind.DROP_KEYS,
        Kind.FORGET_KEYS,
    }
    assert set(Kind) - own == set(_NEEDS)


async def test_a_log_without_room_gives_the_outcome_of_a_batch_to_its_owner_only(tmp_path: Path) -> None:
    """The leader looks for room before it admits a batch, and admission is what checks the caller."""
    async with Group(tmp_path, 1, wal=replace(SMALL, bytes_max=4 * SMALL.segment_bytes)) as group:
        await group.run()
        _, ops = await group.client().create_token("ops", ["administer"])
        admin = group.client(seed=2, token=ops)
        await admin.create_topic("orders")
        _, text = await admin.create_token("writer", ["append"])
        writer = group.client(seed=3, token=text)
        await writer.append("orders", b"a")
        session = writer._sender.session.id
        large = build_batch([bytes(5 * SMALL.segment_bytes)], topic=TopicId(1), session=session, sequence=Sequence(1))
        for token, answer in (("", "StaleSessionError"), (ops, "StaleSessionError"), (text, "OK")):
            async with call(group, greet=False) as caller:
                await caller.hello(token=token)
                body = (await caller.ask(FrameKind.APPEND, large.buffer)).body
                assert body.get("error", "OK") == answer
        await admin.revoke_token("writer")
        async with call(group, greet=False) as caller:
            await caller.hello(token=text)
            assert body_of(await caller.ask(FrameKind.APPEND, large.buffer))["receipt"]
            assert await caller.refusal(FrameKind.CREATE_TOPIC, name="x" * 100) == "AccessDeniedError"
