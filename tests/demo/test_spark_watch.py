"""The readers that look for a part of a micro-batch find one when there is one."""

from __future__ import annotations

import asyncio

import pytest

from viewstamp.demo.spark_watch import PartialBatchWatch
from viewstamp.embed.local_cluster import local_cluster


@pytest.mark.slow
async def test_commit_is_seen_as_a_whole_and_single_appends_are_not() -> None:
    """The ends come from the input: with the same ends, a commit of five records passes, and five appends do not."""
    async with local_cluster(nodes=3) as cluster, cluster.client() as client:
        await client.create_topic("whole")
        await client.create_topic("piecemeal")
        whole, piecemeal = (PartialBatchWatch(client, topic, {0, 5}) for topic in ("whole", "piecemeal"))
        watching = asyncio.gather(whole.run(cluster.ids), piecemeal.run(cluster.ids))

        sink = client.sink("it", owner="it")
        sealed = []
        for values in ([b"a", b"b"], [b"c", b"d", b"e"]):
            attempt = await sink.begin(0)
            await attempt.stage_records("whole", values)  # type: ignore[union-attr]
            sealed.append(await attempt.seal())  # type: ignore[union-attr]
        await sink.commit(0, sealed)
        for value in range(5):
            looks = piecemeal.looks
            await client.append("piecemeal", b"%d" % value)
            while piecemeal.looks < looks + 6:  # noqa: ASYNC110 - waits for the readers, which report to no caller
                await asyncio.sleep(0.001)

        whole.finish()
        piecemeal.finish()
        await watching
    assert (whole.end, whole.partial) == (5, 0)
    assert piecemeal.end == 5
    assert 4 <= piecemeal.partial < piecemeal.looks
