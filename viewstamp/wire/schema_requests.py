"""The row of the table of requests about the schema of a topic; ``requests.py`` has the others."""

from __future__ import annotations

from viewstamp.wire.access import Need, Right
from viewstamp.wire.batch import Kind
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.schema import RequestBody, request

__all__ = ["ConfigureSchema"]


@request(FrameKind.CONFIGURE_SCHEMA, needs=Need(Right.ADMINISTER), record=Kind.CONFIGURE_SCHEMA)
class ConfigureSchema(RequestBody):
    """Set the schema of a topic, or replace it by one that its rows fit. OK: ``topic`` as CreateTopic.

    ``schema``: as ``row_schema.py`` explains it. Before the first one of a cluster the leader asks every member whether
    its release knows the record. The same request again changes nothing.
    """

    name: str
    schema: str
