"""Appends that expect a position are written there, once, or nowhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.cluster import Act, Cluster, Refuse
from tests.client.test_client import until
from viewstamp.client import Client
from viewstamp.errors import (
    DivergedError,
    OutcomeUnknownError,
    OverloadedError,
    PositionMismatchError,
    RequestError,
    UnavailableError,
)
from viewstamp.wire.answers import error_fields, error_from
from viewstamp.wire.frame import FrameKind


async def ready(cluster: Cluster, **options: Any) -> Client:
    client = cluster.client(**options)
    await client.create_topic("orders", timeout=30)
    return client


async def test_an_append_stands_where_it_was_expected(cluster: Cluster) -> None:
    client = await ready(cluster)
    assert (await client.append("orders", b"a", expected_position=1)).position == 1
    receipts = await client.append_many("orders", [b"b", b"c"], expected_position=2)
    assert [receipt.position for receipt in receipts] == [2, 3]
    assert cluster.values() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("expected", [1, 3])
async def test_an_append_elsewhere_is_refused_with_the_next_position_of_the_topic(
    cluster: Cluster, expected: int
) -> None:
    client = await ready(cluster)
    await client.append("orders", b"a")
    with pytest.raises(PositionMismatchError, match=f"'orders' is 2, not {expected}: nothing was written") as refused:
        await client.append("orders", b"b", expected_position=expected)
    assert refused.value.actual == 2
    assert refused.value.remedy
    assert (await client.append("orders", b"c")).position == 2
    assert cluster.values() == [b"a", b"c"]
    assert FrameKind.OUTCOME not in [kind for _, kind in cluster.requests], "the refusal has decided its sequence"


async def test_of_many_appends_that_expect_the_same_position_one_gets_it(cluster: Cluster) -> None:
    clients = [await ready(cluster, seed=seed) for seed in range(3)]
    answers = await asyncio.gather(
        *(client.append("orders", b"%d" % n, expected_position=1) for n in range(4) for client in clients),
        return_exceptions=True,
    )
    won = [answer for answer in answers if not isinstance(answer, PositionMismatchError)]
    assert [answer.position for answer in won if not isinstance(answer, BaseException)] == [1]
    assert {answer.actual for answer in answers if isinstance(answer, PositionMismatchError)} == {2}
    assert len(cluster.values()) == 1


async def test_no_other_records_share_its_batch_and_the_order_of_the_calls_stays(cluster: Cluster) -> None:
    client = await ready(cluster, batches_eager=1, batches_in_flight=1, batches_in_flight_far=1)
    await client.append("orders", b"0")
    cluster.script.append(Act.HOLD)
    calls = [client.append("orders", b"1"), client.append("orders", b"2")]
    calls += [client.append("orders", b"3", expected_position=4), client.append("orders", b"4")]
    calls += [client.append("orders", b"5", key=b"k")]
    tasks = [asyncio.create_task(call) for call in calls]
    await until(lambda: bool(cluster.held))
    cluster.release()
    assert [receipt.position for receipt in await asyncio.gather(*tasks)] == [2, 3, 4, 5, 6]
    assert cluster.values() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [b"3"] in [arrival.values for arrival in cluster.arrived]


async def test_a_retry_of_one_that_was_applied_answers_its_receipt(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.append(Act.APPLY_AND_LOSE)
    assert (await client.append("orders", b"a", expected_position=1)).position == 1
    assert len(cluster.arrived) == 2
    assert cluster.values() == [b"a"]


async def test_a_retry_of_one_that_was_refused_is_refused_for_the_same_reason_though_it_would_fit_now(
    cluster: Cluster,
) -> None:
    """A refusal is final, because the caller may have acted on it."""
    client = await ready(cluster)
    cluster.script.append(Act.APPLY_AND_LOSE)
    asked = asyncio.create_task(client.append("orders", b"b", expected_position=2))
    other = cluster.client(seed=2)
    cluster.leader = cluster.nodes[1]
    await until(lambda: bool(cluster.arrived))
    await other.append("orders", b"a")
    with pytest.raises(PositionMismatchError) as refused:
        await asked
    assert refused.value.actual == 1
    assert cluster.values() == [b"a"]


async def test_a_refusal_for_the_moment_and_a_lost_connection_change_nothing(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.extend([Refuse(OverloadedError("later")), Act.LOSE, Act.OK])
    assert (await client.append("orders", b"a", expected_position=1)).position == 1
    assert cluster.values() == [b"a"]


async def test_an_unknown_outcome_of_a_conditional_append_can_be_queried(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=0.1)
    await client.append("orders", b"a")
    cluster.script.append(Act.HOLD)
    with pytest.raises(OutcomeUnknownError) as unknown:
        await client.append("orders", b"b", expected_position=7)
    assert unknown.value.token is not None
    asked = asyncio.create_task(client.outcome(unknown.value.token, timeout=5))
    cluster.release()
    assert (await asked).answer == "not applied"
    assert cluster.values() == [b"a"]


async def test_a_fenced_conditional_append_does_not_report_a_mismatch(cluster: Cluster) -> None:
    client = await ready(cluster)
    cluster.script.append(Act.HOLD)
    asked = asyncio.create_task(client.append("orders", b"a", expected_position=1))
    await until(lambda: bool(cluster.held))
    arrival = cluster.arrived[0]
    token = client._sender.session.token(client._sender.session._unanswered[0].batch, 0, 1)
    assert token.session == arrival.session
    assert (await cluster.client(seed=2).outcome(token)).answer == "not applied"
    cluster.release()
    with pytest.raises(UnavailableError):
        await asked
    assert cluster.values() == []


@pytest.mark.parametrize("expected", [0, -1, True, 1.0, "1", 1 << 63])
async def test_an_invalid_position_is_refused_at_once(cluster: Cluster, expected: Any) -> None:
    client = await ready(cluster)
    with pytest.raises(RequestError):
        await client.append("orders", b"a", expected_position=expected)
    assert not cluster.arrived


async def test_a_receipt_with_another_position_is_rejected(cluster: Cluster) -> None:
    client = await ready(cluster, timeout=0.2)
    cluster.ignores_expected_positions = True
    await client.append("orders", b"a")
    with pytest.raises(OutcomeUnknownError):
        await client.append("orders", b"b", expected_position=7)


@pytest.mark.parametrize(
    "error", [PositionMismatchError("m", actual=7, remedy="r"), DivergedError("m", index=7, remedy="r")]
)
def test_errors_with_a_number_keep_it_over_the_wire(error: PositionMismatchError | DivergedError) -> None:
    again = error_from(error_fields(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
