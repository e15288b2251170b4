"""The slots of 1,000 keys are those of every earlier release, because another stream has another order.

``slots.txt`` has a line for each key: its bytes in hexadecimal digits, and its slot of 4,096. It never changes.
"""

from __future__ import annotations

from tests.formats.build import FIXTURES
from viewstamp.wire.spread_actors import actor_slot
from viewstamp.wire.spreading import SLOTS, slot_of, slot_ranges

LINES = [line.split(" ") for line in (FIXTURES / "slots.txt").read_text(encoding="ascii").splitlines()]
KEYS = {bytes.fromhex(key): int(slot) for key, slot in LINES}


def test_each_key_has_the_slot_that_it_always_had() -> None:
    assert len(KEYS) == 1000
    assert {key: slot_of(key, SLOTS) for key in KEYS} == KEYS


def test_crc_32c_is_the_one_of_the_standard() -> None:
    """The check value of CRC-32C is that of the digits 1 to 9, and tells it from other CRCs of 32 bits."""
    assert slot_of(b"123456789", 1 << 32) == 0xE3069283


def test_keys_fall_evenly_into_the_streams() -> None:
    starts = [first for first, _ in slot_ranges(SLOTS, 8)]
    counts = [0] * 8
    for slot in KEYS.values():
        counts[max(at for at, first in enumerate(starts) if first <= slot)] += 1
    assert min(counts) > 90


def test_each_instance_of_an_actor_has_the_slot_that_it_always_had() -> None:
    """``actor_slots.txt`` has a line for each: the actor's name, the key, the slot. It never changes either."""
    lines = [line.split(" ") for line in (FIXTURES / "actor_slots.txt").read_text(encoding="ascii").splitlines()]
    slots = {(bytes.fromhex(actor).decode(), bytes.fromhex(key).decode()): int(slot) for actor, key, slot in lines}
    assert len(slots) == 1000
    assert {(actor, key): actor_slot(actor, key, SLOTS) for actor, key in slots} == slots


def test_the_slot_of_an_instance_is_that_of_its_encoding() -> None:
    """As the page about it says, so that another program can compute it."""
    assert actor_slot("ab", "ü", SLOTS) == slot_of(b"\x02\x00\x00\x00ab\xc3\xbc", SLOTS)
