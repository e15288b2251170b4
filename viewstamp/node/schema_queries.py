"""The query about the schemas of topics."""

from __future__ import annotations

from viewstamp.node.state_machine import Query
from viewstamp.value_class import value_class

__all__ = ["HasSchemaQuery"]


@value_class(kw_only=False)
class HasSchemaQuery(Query[bool]):
    """Whether any topic has a schema."""
