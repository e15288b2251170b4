"""The handlers of the requests about keyed topics."""

from __future__ import annotations

from viewstamp.errors import CorruptionError
from viewstamp.node.answers import result_fields
from viewstamp.node.group_0 import check_group_0
from viewstamp.node.keyed_queries import IsKeyedUsedQuery
from viewstamp.node.keyed_rows import KeyRow
from viewstamp.node.service import Caller, in_a_task, name_of_caller
from viewstamp.wire.batch import Kind
from viewstamp.wire.keyed_requests import SCAN_BYTES, ConfigureKeyed, GetKey, ScanKeys
from viewstamp.wire.keying import encode_configure_keyed

__all__: list[str] = []


@in_a_task(ConfigureKeyed)
async def _configure_keyed(caller: Caller, request: int, asked: ConfigureKeyed) -> None:
    """Propose the record: the first one only if this node has a store, and after a probe of the members."""
    check_group_0(caller, "keyed topics are")
    archivist = caller.service.archivist
    is_used, _ = await caller.group.reading.query(IsKeyedUsedQuery(), stale=False)
    if asked.is_on:
        await archivist.check_usable()
    if not is_used:
        await archivist.probe_settings(Kind.FORGET_KEYS)
    batch = encode_configure_keyed(asked.name, is_on=asked.is_on, by=name_of_caller(caller))
    caller.propose(request, batch, result_fields)


@in_a_task(GetKey)
async def _get_key(caller: Caller, request: int, asked: GetKey) -> None:
    check_group_0(caller, "keyed topics are")
    try:
        found = await caller.service.keyed.get(asked.topic, asked.key)
    except CorruptionError as error:
        caller.check(asked)
        caller.ok(request, {"record": None, **_damage(error)})
        return
    caller.check(asked)
    record = None if found.row is None else _fields(found.row)[1:]
    caller.ok(request, {"record": record, "runs": found.runs, "groups": found.groups})


@in_a_task(ScanKeys)
async def _scan_keys(caller: Caller, request: int, asked: ScanKeys) -> None:
    check_group_0(caller, "keyed topics are")
    async with caller.read_lock:
        bytes_max = min(asked.bytes_max, SCAN_BYTES)
        try:
            found = await caller.service.keyed.scan(asked.topic, asked.start, asked.end, bytes_max)
        except CorruptionError as error:
            caller.check(asked)
            caller.ok(request, {"records": [], "next": None, **_damage(error)})
            return
        caller.check(asked)
        caller.ok(request, {"records": [_fields(row) for row in found.rows], "next": found.next})
        await caller.drain()


def _damage(error: CorruptionError) -> dict[str, object]:
    """Return the damage of an object as fields of an OK: as an ERROR it would send the client to another leader."""
    return {"damage": error.message, "path": error.path}


def _fields(row: KeyRow) -> list[object]:
    return list(row)
