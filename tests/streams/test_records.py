"""The state machine reads the records that requests write into the log by the same fields as ``wire/requests.py``."""

from __future__ import annotations

import pytest

from tests.streams.log import Log, command
from tests.wire.test_requests import WRONG, a_body
from viewstamp.errors import RequestError
from viewstamp.streams import Streams
from viewstamp.wire.requests import REQUESTS, ConfigureTopic, CreateTopic, RequestBody, TrimTopic
from viewstamp.wire.schema import BodyField

RECORDS = [row for row in REQUESTS.values() if row.record is not None]
FIELDS = [pytest.param(row, field, id=f"{row.__name__}-{field.name}") for row in RECORDS for field in row.fields]


@pytest.mark.parametrize(("row", "field"), FIELDS)
def test_a_field_that_the_port_would_refuse_is_refused_in_the_log_too(row: type[RequestBody], field: BodyField) -> None:
    """A record is read by every member, also one that an older leader let in: what it means is decided here."""
    assert row.record is not None
    for value in (each for each in WRONG if type(each) not in field.types):
        fields = {**a_body(row), "keep_bytes": 0, field.name: value}
        with pytest.raises(RequestError) as refused:
            Log(Streams()).machine.apply(command(row.record, **fields))
        is_topic = row in (CreateTopic, ConfigureTopic, TrimTopic)  # whose settings have sentences of their own
        assert is_topic or f"whose {field.name} is" in refused.value.message
