"""A client's reaction to each error of a node: one table, which every part of a client follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.client.cluster import Cluster
from tests.streams.log import create_topic
from viewstamp import errors
from viewstamp.client import Client
from viewstamp.client.batches import RECORD_COST
from viewstamp.client.options import ClientOptions
from viewstamp.client.routing import Reaction, reaction
from viewstamp.client.session import Action, Session
from viewstamp.client.unsent import OpenBatches
from viewstamp.errors import OutcomeUnknownError, StaleSessionError, UnavailableError, ViewstampError
from viewstamp.ids import SessionId, TopicId
from viewstamp.wire.answers import error_from

FINAL, LATER, ELSEWHERE, UNKNOWN = Reaction.FINAL, Reaction.LATER, Reaction.ELSEWHERE, Reaction.UNKNOWN
EXPECTED = {
    "BrokenRuleError": UNKNOWN,
    "ClosedError": ELSEWHERE,
    "CommandError": FINAL,
    "ConfigError": UNKNOWN,
    "ContradictionError": UNKNOWN,
    "CorruptionError": UNKNOWN,
    "DirectoryInUseError": UNKNOWN,
    "DivergedError": UNKNOWN,
    "AccessDeniedError": FINAL,
    "FencedError": FINAL,
    "FrameError": UNKNOWN,
    "LostDiskError": UNKNOWN,
    "MovedError": UNKNOWN,
    "NoQuorumError": ELSEWHERE,
    "NotLeaderError": ELSEWHERE,
    "OutcomeUnknownError": UNKNOWN,
    "OutdatedCodeError": UNKNOWN,
    "OverloadedError": LATER,
    "PeerError": UNKNOWN,
    "PositionMismatchError": FINAL,
    "RecordTooLargeError": FINAL,
    "RequestError": FINAL,
    "ResultTooLargeError": FINAL,
    "StagingError": FINAL,
    "StaleSessionError": FINAL,
    "StorageError": UNKNOWN,
    "StorageFullError": FINAL,
    "TlsError": UNKNOWN,
    "TopicExistsError": FINAL,
    "TrimmedError": FINAL,
    "UnavailableError": LATER,
    "UnknownActorError": FINAL,
    "UnknownTopicError": FINAL,
    "ViewstampError": UNKNOWN,
    "WrongClusterError": UNKNOWN,
    "WrongNodeError": UNKNOWN,
    "ErrorOfALaterRelease": UNKNOWN,
}
OF_THE_CLIENT = {"ResultTooLargeError"}
"""Errors that no node sends: the client raises them itself."""

OF_STREAMS = {"StreamSealedError"}
"""Errors that only an append to a stream gets; ``tests/sim/test_sealing.py`` has its reaction."""

every_error = pytest.mark.parametrize("name", EXPECTED)
every_sent_error = pytest.mark.parametrize("name", [name for name in EXPECTED if name not in OF_THE_CLIENT])


def error_named(name: str) -> ViewstampError:
    """Return the error as a client gets it."""
    if name in OF_THE_CLIENT:
        made: ViewstampError = getattr(errors, name)("refused")
        return made
    return error_from({"error": name, "message": "refused"})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start(2)
    yield made
    await made.close()


async def refused_by_the_first(cluster: Cluster, name: str) -> tuple[Client, ViewstampError]:
    """Return a client that has found the leader, the first node, and the error with which that now refuses requests."""
    client = cluster.client(timeout=5.0, back_off_min=0.005, back_off_max=0.005)
    await client.create_topic("orders")
    cluster.requests.clear()
    cluster.nodes[0].refusal = error = error_named(name)
    return client, error


def test_every_error_class_has_its_reaction() -> None:
    assert {each for each in errors.__all__ if each.endswith("Error")} <= EXPECTED.keys() | OF_STREAMS


@every_error
def test_an_error_has_the_reaction_of_the_table(name: str) -> None:
    assert reaction(error_named(name)) is EXPECTED[name]


@every_error
def test_a_batch_of_a_session(name: str) -> None:
    batches: OpenBatches[asyncio.Future[object]] = OpenBatches(ClientOptions(), lambda batch: None)
    session = Session(ClientOptions(), count(1), batches)
    session.opened(SessionId(1))
    waiter: asyncio.Future[object] = asyncio.Future(loop=asyncio.new_event_loop())
    batches.add(TopicId(1), b"a", 1 + RECORD_COST, waiter)
    request = session.take_request()
    assert request is not None
    error = error_named(name)
    action, completions = session.on_refused(request.id, error)
    told = [make(0, 1) for _, _, make in completions]
    if isinstance(error, StaleSessionError):
        assert action is Action.REOPEN
        assert [type(each) for each in told] == [UnavailableError]
    elif EXPECTED[name] is FINAL:
        assert action is Action.GO_ON
        assert [(type(each), str(each)) for each in told] == [(type(error), str(error))]
    else:
        assert told == []
        assert action is (Action.BACK_OFF if EXPECTED[name] is LATER else Action.MOVE)
        in_doubt = [make(0, 1) for _, _, make in session.close()]
        assert [type(each) for each in in_doubt] == [OutcomeUnknownError]
    waiter.get_loop().close()


@every_sent_error
async def test_a_request_to_the_leader(cluster: Cluster, name: str) -> None:
    client, error = await refused_by_the_first(cluster, name)
    if EXPECTED[name] is FINAL:
        with pytest.raises(type(error), match="refused"):
            await client.create_topic("bills")
        return
    if EXPECTED[name] is not LATER:
        cluster.leader = cluster.nodes[1]
    asking = asyncio.create_task(client.create_topic("bills"))
    await asyncio.sleep(0.05)
    cluster.nodes[0].refusal = None
    await asking
    asked = {node for node, _ in cluster.requests}
    assert asked == ({"n1"} if EXPECTED[name] is LATER else {"n1", "n2"})


@every_sent_error
async def test_a_request_to_any_node(cluster: Cluster, name: str) -> None:
    client, error = await refused_by_the_first(cluster, name)
    if EXPECTED[name] is FINAL:
        with pytest.raises(type(error), match="refused"):
            await client.describe_topic("orders")
    else:
        await client.describe_topic("orders")
        assert [node for node, _ in cluster.requests] == ["n1", "n2"]


@every_sent_error
async def test_the_name_of_a_topic_that_appends_wait_for(cluster: Cluster, name: str) -> None:
    """The first append requests the topic's name, and a final error fails all appends that wait for it."""
    client, error = await refused_by_the_first(cluster, name)
    appending = asyncio.create_task(client.append("orders", b"a"))
    if EXPECTED[name] is FINAL:
        with pytest.raises(type(error), match="refused"):
            await appending
    else:
        await asyncio.sleep(0.02)
        cluster.nodes[0].refusal = None
        assert (await appending).position == 1


async def test_an_answer_that_is_too_large_for_the_client_is_not_asked_for_elsewhere(cluster: Cluster) -> None:
    """The other nodes would give the same answer until the timeout."""
    client = cluster.client(timeout=5.0, frame_bytes_max=4096)
    for number in range(60):
        cluster.propose(create_topic(f"a-topic-with-a-long-name-{number:050}"))
    with pytest.raises(errors.ResultTooLargeError):
        await asyncio.wait_for(client.list_topics(), 1)
    assert len(cluster.requests) == 1
