"""The handler of the request about the schema of a topic."""

from __future__ import annotations

import msgpack

from viewstamp.node.answers import result_fields
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.schema_queries import HasSchemaQuery
from viewstamp.node.service import Caller, in_a_task, name_of_caller
from viewstamp.node.state_machine import TopicQuery
from viewstamp.wire.batch import Kind, build_batch
from viewstamp.wire.row_schema import RowSchema
from viewstamp.wire.schema_requests import ConfigureSchema

__all__: list[str] = []


@in_a_task(ConfigureSchema)
async def _configure_schema(caller: Caller, request: int, asked: ConfigureSchema) -> None:
    """Propose the record, after a probe of the members if it is the first one.

    The leader checks the caller again when it admits the record.
    """
    check_group_0(caller, "topics have schemas")
    fields = {"name": asked.name, "schema": RowSchema.parse(asked.schema).text}
    await caller.group.reading.query(TopicQuery(asked.name), stale=False)  # Raises for a topic with streams.
    has_schema, _ = await caller.group.reading.query(HasSchemaQuery(), stale=False)
    if not has_schema:
        await caller.service.archivist.probe_settings(Kind.CONFIGURE_SCHEMA)
    if by := name_of_caller(caller):
        fields["by"] = by
    caller.propose(request, build_batch([msgpack.packb(fields)], kind=Kind.CONFIGURE_SCHEMA), result_fields)
