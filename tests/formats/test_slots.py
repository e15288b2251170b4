"""The slots of 1,000 keys are those of every earlier release, because another stream has another order.

``slots.txt`` has a line for each key: its bytes in hexadecimal digits, and its slot of 4,096. It never changes. New
topics have another number of slots, which is in the record of the topic.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.formats.build import FIXTURES
from viewstamp.wire.spread_actors import actor_slot
from viewstamp.wire.spreading import SLOTS, slot_of, slot_ranges

LINES = [line.split(" ") for line in (FIXTURES / "slots.txt").read_text(encoding="ascii").splitlines()]
EARLIER_SLOTS = 4096
KEYS = {bytes.fromhex(key): int(slot) for key, slot in LINES}


def test_each_key_has_the_slot_that_it_always_had() -> None:
    assert len(KEYS) == 1000
    assert {key: slot_of(key, EARLIER_SLOTS) for key in KEYS} == KEYS


def test_crc_32c_is_the_one_of_the_standard() -> None:
    """The check value of CRC-32C is that of the digits 1 to 9, and tells it from other CRCs of 32 bits."""
    assert slot_of(b"123456789", 1 << 32) == 0xE3069283


@pytest.mark.parametrize("streams", [2, 3, 4, 6, 8])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([*KEYS], id="random"),
        pytest.param([b"%d-%d" % (shop, till) for shop in range(8) for till in range(8)], id="two-small-numbers"),
        pytest.param([b"w%d-%d" % (shop, till) for shop in range(8) for till in range(16)], id="with-a-letter"),
        pytest.param([b"user%05d" % number for number in range(200)], id="numbered"),
        pytest.param([number.to_bytes(8, "big") for number in range(128)], id="binary"),
    ],
)
def test_keys_fall_evenly_into_the_streams(keys: Sequence[bytes], streams: int) -> None:
    """Also keys that differ in few bits: a CRC is linear, so its lowest bits would leave half of the streams empty."""
    starts = [first for first, _ in slot_ranges(SLOTS, streams)]
    counts = [0] * streams
    for key in keys:
        counts[max(at for at, first in enumerate(starts) if first <= slot_of(key, SLOTS))] += 1
    assert min(counts) > len(keys) / streams / 3


def test_each_instance_of_an_actor_has_the_slot_that_it_always_had() -> None:
    """``actor_slots.txt`` has a line for each: the actor's name, the key, the slot. It never changes either."""
    lines = [line.split(" ") for line in (FIXTURES / "actor_slots.txt").read_text(encoding="ascii").splitlines()]
    slots = {(bytes.fromhex(actor).decode(), bytes.fromhex(key).decode()): int(slot) for actor, key, slot in lines}
    assert len(slots) == 1000
    assert {(actor, key): actor_slot(actor, key, EARLIER_SLOTS) for actor, key in slots} == slots


def test_the_slot_of_an_instance_is_that_of_its_encoding() -> None:
    """As the page about it says, so that another program can compute it."""
    assert actor_slot("ab", "ü", SLOTS) == slot_of(b"\x02\x00\x00\x00ab\xc3\xbc", SLOTS)
