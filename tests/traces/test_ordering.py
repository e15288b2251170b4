"""Histories of the order of streams are behaviours of the specification, and planted mistakes are none."""

from __future__ import annotations

import random

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.streams.order_history import OrderHistory
from tests.traces.ordering import follow_order

_ACTIONS = 60


def recorded(seed: int) -> OrderHistory:
    """Return a history, or its beginning if an action of a planted mistake fails."""
    history = OrderHistory(random.Random(seed), streams=1 + seed % 3, checks=False)
    for _ in range(_ACTIONS):
        if not history.try_act():
            break
    return history


@pytest.mark.parametrize("seed", range(12))
def test_a_history_is_a_behaviour_of_the_specification(seed: int) -> None:
    history = recorded(seed)
    assert history.failure == ""
    assert len(history.steps) > 15
    assert follow_order(history) == (len(history.steps), "")


@pytest.mark.parametrize(
    "mutant",
    [
        "order-takes-shrunk",
        "order-skips-a-position",
        "forget-what-is-ordered",
        "context-above-the-map",
        "order-without-versions",
        "write-empty-orders",
    ],
)
def test_a_history_with_a_planted_mistake_is_none(mutant: str) -> None:
    with CATALOGUE[mutant].plant():
        histories = [recorded(seed) for seed in range(30)]
    assert any(follow_order(history) != (len(history.steps), "") for history in histories)
