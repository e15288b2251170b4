"""A topic whose records are in several runs, and the last ones in no run."""

from __future__ import annotations

from viewstamp.client import Client


async def fill_runs(client: Client, topic: str, runs: int) -> None:
    """Create a topic with so many runs of ten records, with and without keys and headers, and five more records."""
    await client.create_topic(topic)
    keys, headers = [b"k", None] * 5, [None, {"a": b"1", "b": b""}] * 5
    for run in range(runs):
        values = [b"%d.%d" % (run, number) for number in range(10)]
        await client.append_many(topic, values, keys=keys, headers=headers)
        await client.archive_topic(topic)
    await client.append_many(topic, [b"not archived"] * 5)
