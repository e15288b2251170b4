"""The state machine reads records with the same fields as ``wire/requests.py`` reads the requests behind them."""

from __future__ import annotations

import pytest

from tests.streams.log import Log, command
from tests.wire.test_requests import WRONG, a_body
from viewstamp.errors import RequestError
from viewstamp.streams import Streams
from viewstamp.wire.archive_requests import ConfigureArchive
from viewstamp.wire.group_requests import PlaceGroup, RemoveGroup
from viewstamp.wire.requests import REQUESTS, ConfigureTopic, CreateTopic, RequestBody, TrimTopic
from viewstamp.wire.schema import BodyField
from viewstamp.wire.schema_requests import ConfigureSchema, ConfigureSpreadSchema
from viewstamp.wire.spread_actors import SpreadActorOverGroups
from viewstamp.wire.spread_requests import (
    AddStream,
    ConfigureSpreadArchive,
    ConfigureSpreadTopic,
    CreateSpreadTopic,
    LoseStream,
    RemoveStream,
    SealStream,
    TrimSpreadTopic,
)
from viewstamp.wire.token_requests import NoteTransfer

OTHERS = (
    *(PlaceGroup, CreateSpreadTopic, ConfigureSpreadTopic, ConfigureSpreadArchive, TrimSpreadTopic),
    *(AddStream, SealStream, LoseStream, RemoveStream, RemoveGroup),
    *(ConfigureArchive, ConfigureSchema, ConfigureSpreadSchema, NoteTransfer, SpreadActorOverGroups),
)
"""Records with other fields than their request, or with known fields only: ``test_placement.py``, ``test_spread.py``,
``test_sealing.py``, ``test_removed_streams.py``, ``test_removed_groups.py``, ``test_spread_actors.py``,
``test_topic_schema.py`` and ``test_archive_settings.py`` have them."""
RECORDS = [row for row in REQUESTS.values() if row.record is not None and row not in OTHERS]
FIELDS = [pytest.param(row, field, id=f"{row.__name__}-{field.name}") for row in RECORDS for field in row.fields]


@pytest.mark.parametrize(("row", "field"), FIELDS)
def test_a_field_that_the_port_would_refuse_is_refused_in_the_log_too(row: type[RequestBody], field: BodyField) -> None:
    """Because each member decides about a record as it reads it, even if an older leader has admitted it."""
    assert row.record is not None
    for value in (each for each in WRONG if type(each) not in field.types):
        fields = {**a_body(row), "keep_bytes": 0, field.name: value}
        with pytest.raises(RequestError) as refused:
            Log(Streams()).machine.apply(command(row.record, **fields))
        is_topic = row in (CreateTopic, ConfigureTopic, TrimTopic)  # their settings have error messages of their own
        assert is_topic or f"whose {field.name} is" in refused.value.message
