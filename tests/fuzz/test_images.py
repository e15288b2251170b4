"""Snapshot pieces with right checksums that are no valid state are refused by name, and the old state stays."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.material import DEEP, altered, at_most, only, spoilt, tries
from tests.streams.actors import CLASSES, call, commands
from tests.streams.log import Log, pieces, trim_topic
from tests.streams.test_placement import cancel, established, place, placed
from tests.streams.test_runs import commit
from tests.streams.test_runs import prepare as prepare_run
from tests.streams.test_tokens import READER, create
from viewstamp.actors.replicated.cut import read_pieces
from viewstamp.errors import CorruptionError, OutdatedCodeError
from viewstamp.ids import GlobalPosition, GroupId, Position, Stream
from viewstamp.streams import Streams
from viewstamp.wire.ordering import GlobalRun, StreamReport, encode_context, encode_order
from viewstamp.wire.spread_actors import encode_spread_actor
from viewstamp.wire.spreading import encode_spread
from viewstamp.wire.values import pack, unpack

REFUSED = (CorruptionError, OutdatedCodeError)


@cache
def handed_out() -> list[bytes]:
    """Return a small cut with everything that a state has: topics, sessions, actors, tokens, groups, runs, an order."""
    log = Log(Streams(CLASSES))
    sessions = [log.session() for _ in range(3)]
    for n in range(3):
        log.topic(f"t{n}", retain_bytes=100_000 * (n % 2), retain_seconds=100.0 * (n % 3))
    for n, session in enumerate(sessions):
        log.append(1 + n, session, 1, size=300)
        log.run(commands(session, 2, call("add", n, key=str(n)), call("write", "a", actor="journal")))
    log.run(trim_topic("t1", 2))
    log.run(create(READER, "read:*"))
    groups = [established(log, f"s{n}") for n in range(2)]
    log.run(place("waiting"))
    log.run(cancel(placed(log, "cancelled")))
    log.run(encode_spread("spread", [*groups, groups[0]], retain_bytes=7))
    log.run(encode_spread_actor("parcels", groups))
    topic = log.describe("t0")["id"]
    log.append(topic, sessions[0], 3, count=30)
    log.run(commit(log.run(prepare_run(1, 11, topic))["run"]["id"], 10))  # type: ignore[index]
    log.run(prepare_run(11, 21, topic))
    names = [(groups[0], "spread.1"), (groups[1], "spread.2")]
    ends = [StreamReport(Stream(GroupId(group), name), Position(5), Position(1)) for group, name in names]
    log.run(encode_order(ends))
    log.run(encode_context("t0", [GlobalRun(1, GlobalPosition(1), Position(1), 4)]))
    return list(pieces(log.machine.begin_snapshot(), 300))


def prepare(changed: list[bytes]) -> None:
    only(REFUSED, lambda: Streams(CLASSES).prepare(iter(changed)))


def test_the_cut_as_it_was_handed_out_is_a_state() -> None:
    names = [msgpack.unpackb(piece, strict_map_key=False)[0] for piece in handed_out()]
    assert {"state", "sessions", "topics", "actors", "end"} <= set(names)
    assert Streams(CLASSES).prepare(iter(handed_out())) is not None


@tries(200)
@given(st.data())
def test_pieces_that_are_spoilt_missing_doubled_or_in_another_order_are_refused(data: st.DataObject) -> None:
    whole = handed_out()
    changed = list(whole)
    at = data.draw(st.integers(0, len(whole) - 1))
    match data.draw(st.sampled_from(["spoil", "spoil", "drop", "double", "swap", "none"])):
        case "spoil":
            changed[at] = data.draw(spoilt(whole[at], tuple(whole)))
        case "drop":
            del changed[at]
        case "double":
            changed.insert(at, changed[at])
        case "swap":
            other = data.draw(st.integers(0, len(whole) - 1))
            changed[at], changed[other] = changed[other], changed[at]
        case _:
            changed = changed[:at]
    prepare(changed)


@tries(150)
@given(st.data())
def test_an_image_of_a_topic_a_session_a_sink_or_an_actor_that_is_none_is_refused(data: st.DataObject) -> None:
    changed = list(handed_out())
    at = data.draw(st.integers(0, len(changed) - 1))
    section, content = msgpack.unpackb(changed[at], strict_map_key=False)
    if section == "actors":
        inner: Any = unpack(content)
        content = pack(data.draw(altered(inner)))
        only(REFUSED, lambda: read_pieces([content]))
    else:
        content = data.draw(altered(content))
    changed[at] = msgpack.packb([section, content])
    prepare(changed)


@pytest.mark.parametrize("at", range(5))
def test_a_piece_nested_a_thousand_deep_is_refused(at: int) -> None:
    changed = list(handed_out())
    section = msgpack.unpackb(changed[at], strict_map_key=False)[0]
    for content in (DEEP[20:], msgpack.packb(DEEP[20:])):
        changed[at] = b"\x92" + msgpack.packb(section) + content
        prepare(changed)


@pytest.mark.parametrize("size", [2**24, 2**31, 2**62])
def test_a_number_where_bytes_belong_asks_for_no_memory(size: int) -> None:
    changed = list(handed_out())
    at = next(at for at, piece in enumerate(changed) if msgpack.unpackb(piece, strict_map_key=False)[0] == "sessions")
    section, images = msgpack.unpackb(changed[at], strict_map_key=False)
    for field in range(len(images[0])):
        image = [*images[0][:field], size, *images[0][field + 1 :]]
        changed[at] = msgpack.packb([section, [image, *images[1:]]])
        with at_most(5_000_000):
            prepare(changed)
