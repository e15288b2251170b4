"""The table of requests: one row for each kind, each field checked by name, and the recorded bytes."""

from __future__ import annotations

import math
from pathlib import Path
from types import NoneType
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import RequestError
from viewstamp.wire.archive_requests import ArchiveTopic
from viewstamp.wire.copy_requests import DescribeLog
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.keyed_requests import ScanKeys
from viewstamp.wire.peer_requests import AskToJoin, ReadLog, ReadSnapshot
from viewstamp.wire.requests import REQUESTS, RequestBody
from viewstamp.wire.schema import BodyField
from viewstamp.wire.spread_requests import LoseStream
from viewstamp.wire.token_requests import NoteTransfer

NO_REQUESTS = {"HELLO", "WELCOME", "REFUSED", "MEMBERS", "PEER", "DIGEST", "BEATS", "OK", "ERROR"}
ROWS = [pytest.param(row, id=row.__name__) for row in REQUESTS.values()]
FIELDS = [
    pytest.param(row, field, id=f"{row.__name__}-{field.name}") for row in REQUESTS.values() for field in row.fields
]
SENT = (Path(__file__).parents[1] / "client/request_bytes.txt").read_text().splitlines()
WRONG: list[object] = [None, True, 7, 2.5, "seven", b"seven", [7], {"seven": 7}]


def in_range(field: BodyField) -> list[object]:
    """Return values in the range of the field, including its bounds."""
    least, most = field.range.least, field.range.most
    values: dict[type, list[object]] = {
        int: [int(least), 1 << 31, (1 << 63) - 1 if most > 1 << 63 else int(most)],
        float: [float(least), 0.5, float(most) if most < 1 << 60 or most == math.inf else 1e18],
        str: ["", "a name", "ä\0"],
        bytes: [bytes(int(least)), b"\xff" * int(least)],
        bool: [False, True],
        list: [[], [[1, b"entries"]]],
        NoneType: [None],
    }
    if most == 600:
        values[int] = [0, 600]
    found = [value for kind in field.types for value in values[kind]]
    return [value for value in found if type(value) is not int or field.range.holds(value)]


def out_of_range(field: BodyField) -> list[object]:
    numbers: list[object] = [field.range.least - 1, math.nan]
    numbers += [] if field.range.most == math.inf else [int(field.range.most) + 1, math.inf]
    if bytes in field.types and field.range.least:
        numbers += [bytes(int(field.range.least) - 1), bytes(int(field.range.most) + 1)]
    return [value for value in numbers if type(value) in field.types]


def a_body(row: type[RequestBody]) -> dict[str, object]:
    return {field.name: in_range(field)[0] for field in row.fields}


def test_the_table_has_the_order_of_the_kinds_whichever_module_was_imported_first() -> None:
    """The workers of a test run import in different orders, and must collect the same tests."""
    assert list(REQUESTS) == sorted(REQUESTS)


def test_every_kind_of_frame_that_is_a_request_has_one_row() -> None:
    assert {kind.name for kind in FrameKind} - NO_REQUESTS == {FrameKind(kind).name for kind in REQUESTS}
    assert len(set(REQUESTS.values())) == len(REQUESTS)
    assert all(row.kind == kind for kind, row in REQUESTS.items())


@pytest.mark.parametrize("line", SENT)
def test_recorded_client_requests_are_read_and_packed_to_the_same_bytes(line: str) -> None:
    name, digits = line.split()
    if name == "HELLO":
        return
    body = msgpack.unpackb(bytes.fromhex(digits))
    assert msgpack.packb({"id": 7, **REQUESTS[FrameKind[name]].decode(body).to_map()}).hex() == digits


def test_the_keys_of_peer_requests_never_change() -> None:
    assert list(ReadLog(start=1, end=2, bytes_max=3).to_map()) == ["start", "end", "bytes_max"]
    assert list(ReadSnapshot(end=1, term=2, offset=3, bytes_max=4).to_map()) == ["end", "term", "offset", "bytes_max"]
    assert AskToJoin(address="a:1").to_map() == {"address": "a:1"}
    assert list(AskToJoin(address="a:1", member="n4~x").to_map()) == ["address", "member"]


@pytest.mark.parametrize("row", ROWS)
@given(data=st.data())
def test_a_request_is_read_as_it_was_packed(row: type[RequestBody], data: st.DataObject) -> None:
    given_fields: dict[str, Any] = {
        field.name: data.draw(st.sampled_from(in_range(field)), field.name) for field in row.fields
    }
    asked = row(**given_fields)
    body = msgpack.unpackb(msgpack.packb({"id": 7, **asked.to_map(), "of a newer release": 1}))
    assert row.decode(body) == asked


@pytest.mark.parametrize(("row", "field"), FIELDS)
def test_a_field_of_a_wrong_type_or_out_of_range_is_refused_by_name(row: type[RequestBody], field: BodyField) -> None:
    for value in [*(each for each in WRONG if type(each) not in field.types), *out_of_range(field)]:
        with pytest.raises(RequestError) as refused:
            row.decode({**a_body(row), field.name: value})
        assert f"a {row.kind.name} whose {field.name} is " in str(refused.value)
        assert refused.value.remedy


WITH_DEFAULT = {"challenge", "delay", "expects", "forget_seconds", "is_new", "member", "noted", "ordered"}
DEFAULTS = {
    (ArchiveTopic, "before"),
    (DescribeLog, "groups"),
    (ScanKeys, "start"),
    (ScanKeys, "bytes_max"),
    (LoseStream, "is_sealed"),
    (NoteTransfer, "action"),
}


@pytest.mark.parametrize(("row", "field"), FIELDS)
def test_a_field_that_is_missing_is_refused_unless_it_has_a_default(row: type[RequestBody], field: BodyField) -> None:
    body = a_body(row)
    del body[field.name]
    if NoneType in field.types:
        assert getattr(row.decode(body), field.name) is None
    elif (row, field.name) in DEFAULTS or field.name in WITH_DEFAULT:
        assert getattr(row.decode(body), field.name) == field.default
    else:
        with pytest.raises(RequestError, match=f"whose {field.name} is None"):
            row.decode(body)
