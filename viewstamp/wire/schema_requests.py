"""The rows of the table of requests about the schemas of topics; ``requests.py`` has the others."""

from __future__ import annotations

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request

__all__ = ["ConfigureSchema", "ConfigureSpreadSchema"]

_ADMINISTER = Need(Right.ADMINISTER)


@request(FrameKind.CONFIGURE_SCHEMA, needs=_ADMINISTER, record=Kind.CONFIGURE_SCHEMA)
class ConfigureSchema(RequestBody):
    """Set the schema of a topic, or replace it by one that its rows fit. OK: ``topic`` as CreateTopic.

    ``schema``: as ``row_schema.py`` explains it. Before the first one of a cluster the leader asks every member whether
    its release knows the record. The same request again changes nothing.
    """

    name: str
    schema: str


@request(FrameKind.CONFIGURE_SPREAD_SCHEMA, needs=_ADMINISTER, record=Kind.CONFIGURE_SPREAD_SCHEMA)
class ConfigureSpreadSchema(RequestBody):
    """As ConfigureSchema, of a spread topic. OK: ``topic`` as CreateSpreadTopic.

    The leaders of the groups set the schema of the streams afterwards.
    """

    name: str
    schema: str
