"""The digest depends on the records only, not on their batches or on the division into parts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from viewstamp.replay import Digest
from viewstamp.replay.digest import combine
from viewstamp.wire.batch import Columns, build_batch, build_columns
from viewstamp.wire.columns import join_columns, slice_columns

VisibleItem = tuple[bytes, bytes | None, Mapping[str, bytes] | None]

ITEMS = st.lists(
    st.tuples(
        st.binary(max_size=12),
        st.none() | st.binary(max_size=4),
        st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=30,
)


def columns(items: Sequence[VisibleItem]) -> Columns:
    values, keys, headers = zip(*items, strict=True)
    return build_batch(list(values), keys=list(keys), headers=list(headers)).columns()


def cut(items: Sequence[VisibleItem], entropy: random.Random) -> list[Sequence[VisibleItem]]:
    ends = sorted({len(items), *(entropy.randint(1, len(items)) for _ in range(4))})
    return [items[a:b] for a, b in zip([0, *ends], ends, strict=False) if a < b]


def digest(items: Sequence[VisibleItem], entropy: random.Random) -> Digest:
    found, position = Digest(), 5
    for part in cut(items, entropy):
        found.add("t", position, columns(part))
        position += len(part)
    return found


@given(ITEMS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_digest_does_not_depend_on_batches_or_on_parts(items: list[VisibleItem], entropy: random.Random) -> None:
    expected = digest(items, random.Random(0)).hexdigest()
    assert digest(items, entropy).hexdigest() == expected
    whole, position = Digest(), 5
    for part in cut(items, entropy):
        apart = Digest()
        apart.add("t", position, columns(part))
        whole.join(apart)
        position += len(part)
    assert whole.hexdigest() == expected


@given(ITEMS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_digest_sees_any_difference(items: list[VisibleItem], entropy: random.Random) -> None:
    expected = digest(items, entropy).hexdigest()
    at = entropy.randrange(len(items))
    value, key, headers = items[at]
    others: list[VisibleItem] = [
        (value + b"\0", key, headers),
        (value, b"" if key is None else key + b"x", headers),
        (value, key, {"new": b""}),
    ]
    for other in others:
        changed = [*items[:at], other, *items[at + 1 :]]
        assert digest(changed, entropy).hexdigest() != expected
    assert digest([*items, items[0]], entropy).hexdigest() != expected


def test_the_order_of_records_and_topics_counts_as_it_should() -> None:
    one, two = columns([(b"1", None, None)]), columns([(b"2", None, None)])

    def of(*parts: tuple[str, int, Columns]) -> str:
        found = Digest()
        for part in parts:
            found.add(*part)
        return found.hexdigest()

    assert of(("a", 1, one), ("a", 2, two)) != of(("a", 1, two), ("a", 2, one))
    assert of(("a", 1, one), ("b", 1, two)) == of(("b", 1, two), ("a", 1, one))
    assert of(("a", 1, one)) != of(("b", 1, one))
    assert of(("a", 1, one)) != of(("a", 2, one))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_of_parts_give_that_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(ITEMS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_columns_cut_and_joined_hold_the_same_records(items: list[VisibleItem], entropy: random.Random) -> None:
    whole = columns(items)
    start = entropy.randint(0, len(items) - 1)
    end = entropy.randint(start + 1, len(items))

    def held(found: Columns) -> list[object]:
        return [(r.value, r.key, r.headers) for r in build_columns(found).records()]

    expected = [(value, key, headers) for value, key, headers in items]
    assert held(slice_columns(whole, start, end)) == expected[start:end]
    assert held(join_columns([columns(part) for part in cut(items, entropy)])) == expected
