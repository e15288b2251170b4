"""Material for fuzz tests: arbitrary msgpack values, spoilt bytes, and a check of the outcome.

The tests are quick in the default suite; ``make fuzz`` (``VIEWSTAMP_SOAK=1``) tries many more examples, and other ones
each time.
"""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgpack
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from viewstamp.errors import ViewstampError

T = TypeVar("T")

SOAK = bool(os.environ.get("VIEWSTAMP_SOAK"))
SOAK_FACTOR = 40
SECONDS_MAX = 5.0
"""For one decoder on some kilobytes: a hundred times the duration on a busy machine, but still a limit."""

DEEP = b"\x91" * 1000 + b"\xc0"
"""A list in a list in a list, at msgpack's maximum depth; Python's own ``repr`` fails on it."""


def tries(count: int) -> settings:
    """Return settings with ``count`` tries by default, and always the same examples."""
    return settings(
        max_examples=count * SOAK_FACTOR if SOAK else count,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )


@cache
def numbers() -> st.SearchStrategy[int]:
    """Return numbers, most of them at the limits of types."""
    edges = [0, 1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63]
    return st.sampled_from([*edges, 2**64 - 1, -1, -(2**31), -(2**63)]) | st.integers(-(2**63), 2**64 - 1)


@cache
def packables() -> st.SearchStrategy[Any]:
    """Return any value that msgpack can encode."""
    plain = (
        st.none()
        | st.booleans()
        | numbers()
        | st.floats()
        | st.text(max_size=20)
        | st.binary(max_size=20)
        | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20))
    )
    keys = st.text(max_size=8) | st.binary(max_size=8)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5), max_leaves=10
    )


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """Return ``value`` with a part replaced, left out or doubled, also inside maps and lists."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value, key=repr)))
        rest = {name: each for name, each in value.items() if name != key}
        return rest if not draw(st.integers(0, 5)) else {**value, key: draw(altered(value[key]))}
    if isinstance(value, list | tuple) and value and draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(value) - 1))
        put = draw(st.sampled_from(["drop", "double", "alter", "alter", "alter"]))
        middle = {"drop": [], "double": [value[at]] * 2}.get(put)
        return [*value[:at], *(middle if middle is not None else [draw(altered(value[at]))]), *value[at + 1 :]]
    if isinstance(value, bytes) and value and draw(st.booleans()):
        return draw(spoilt(value))
    return draw(packables())


@st.composite
def spoilt(draw: st.DrawFn, data: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """Return ``data`` with flipped bits, removed, inserted or overwritten bytes, and pieces of ``others``."""
    spoilt = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(spoilt) - 1)))
        match draw(st.sampled_from(["flip", "flip", "number", "cut", "insert", "end", "splice", "double"])):
            case "flip" if spoilt:
                spoilt[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                size = draw(st.sampled_from([1, 2, 4, 8]))
                at -= at % size
                value = draw(numbers()) % (1 << 8 * size)
                spoilt[at : at + size] = value.to_bytes(size, draw(st.sampled_from(["little", "big"])))
            case "cut":
                del spoilt[at : at + draw(st.integers(1, 64))]
            case "insert":
                spoilt[at:at] = draw(st.binary(min_size=1, max_size=32))
            case "end":
                del spoilt[at:]
            case "splice" if others:
                other = draw(st.sampled_from(others))
                start = draw(st.integers(0, max(0, len(other) - 1)))
                spoilt[at:] = other[start:]
            case "double":
                size = draw(st.integers(1, 256))
                spoilt[at:at] = spoilt[at : at + size]
            case _:
                pass
    return bytes(spoilt)


def only(allowed: type[ViewstampError] | tuple[type[ViewstampError], ...], decode: Callable[[], T]) -> T | None:
    """Decode and return the value; None = it was refused with an error that can be shown to a caller.

    These tests look for any other exception than ``allowed``, and for a decoder that takes too long.
    """
    begun = time.monotonic()
    result, refusal = None, "refused"
    try:
        result = decode()
    except allowed as error:
        refusal = str(error)
    seconds = time.monotonic() - begun
    assert seconds < SECONDS_MAX, f"{seconds:.1f} s"
    assert 0 < len(refusal) < 10_000, "the message of an error must be short enough to read"
    return result


ALMOST_NOTHING = 4_000_000
"""A limit for :func:`at_most`: far below gigabytes, and above what other threads of the test run allocate meanwhile."""


@contextlib.contextmanager
def at_most(bytes_max: int) -> Iterator[None]:
    """Fail if more memory is allocated inside, even if it is freed at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= bytes_max, f"{peak:,} bytes were asked for, the limit is {bytes_max:,}"
