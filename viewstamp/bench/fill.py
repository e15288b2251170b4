"""Appends a number of records to the topic, as fast as the cluster accepts them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from viewstamp.bench.cluster import TOPIC
from viewstamp.terminal.bulk import Appended, append_chunks

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.terminal.show import Show

__all__ = ["fill", "value_of"]

CHUNK_BYTES: Final = 64 * 1024
CHUNK_RECORDS: Final = 1000
TIMEOUT_SECONDS: Final = 60.0


def value_of(size: int) -> bytes:
    """Return ``size`` random bytes, all of them printable."""
    return os.urandom((size + 1) // 2).hex().encode()[:size]


async def fill(client: Client, records: int, size: int, show: Show) -> Appended:
    """Append ``records`` of ``size`` bytes and return their positions. Raises the error of the first failed append."""
    value = value_of(size)
    chunk = max(1, min(CHUNK_RECORDS, CHUNK_BYTES // max(size, 1)))

    async def chunks() -> AsyncIterator[list[bytes]]:
        for first in range(0, records, chunk):
            show.count(first, records, f"appending record {first:,} of {records:,}")
            yield [value] * min(chunk, records - first)

    appended = Appended()
    await append_chunks(client, TOPIC, chunks(), appended, timeout=TIMEOUT_SECONDS)
    if appended.error is not None:
        raise appended.error
    return appended
