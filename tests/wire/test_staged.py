"""The body of a COMMIT is read as it was written, and invalid bodies are refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import RequestError
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.staged import ENTRY_SIZE, StagedBatch, decode_commit, decode_fields, entries_of, pack_entry

ENTRIES = st.builds(
    StagedBatch,
    index=st.integers(1, 2**63 - 1),
    topic=st.integers(1, 2**32 - 1),
    count=st.integers(1, 2**32 - 1),
    size=st.integers(96, 2**32 - 1),
)


def commit(**fields: Any) -> Batch:
    said = {"sink": "s", "owner": "q", "run": "r", "batch": 3, "parts": []} | fields
    return build_batch([msgpack.packb(said)], kind=Kind.COMMIT)


@given(st.lists(st.lists(ENTRIES)))
def test_a_commit_is_read_as_it_was_written(parts: list[list[StagedBatch]]) -> None:
    packed = [[at + 1, b"".join(pack_entry(*entry) for entry in part)] for at, part in enumerate(parts)]
    request = decode_commit(commit(parts=packed))
    assert (request.sink, request.owner, request.run, request.batch) == ("s", "q", "r", 3)
    assert [attempt for attempt, _ in request.parts] == list(range(1, len(parts) + 1))
    assert [list(entries_of(entries)) for _, entries in request.parts] == parts


@given(st.binary(max_size=60))
def test_bytes_that_are_no_commit_are_refused_and_nothing_else(data: bytes) -> None:
    batch = build_batch([data], kind=Kind.COMMIT)
    with pytest.raises(RequestError):
        decode_commit(batch)


@pytest.mark.parametrize(
    "fields",
    [
        {"batch": True},
        {"batch": -1},
        {"sink": b"s"},
        {"sink": "\u00e4" * 129},
        {"parts": [[1, b"x" * (ENTRY_SIZE + 1)]]},
    ],
)
def test_a_wrong_field_is_refused_by_its_name(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(fields)).rstrip("s")):
        decode_commit(commit(**fields))


def test_fields_are_returned_in_the_requested_order() -> None:
    assert decode_fields(commit(batch=9), run=str, batch=int) == ["r", 9]
