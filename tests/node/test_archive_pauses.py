"""The pauses of a leader between requests to archive that fail."""

from __future__ import annotations

import pytest

from viewstamp.errors import NoQuorumError, NotLeaderError, UnavailableError
from viewstamp.host.interfaces import Clock
from viewstamp.node.archive_pauses import ArchivePauses

AWAY = UnavailableError("away", remedy="look")


class Hand(Clock):
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_us(self) -> int:
        raise AssertionError("the pauses use the monotonic clock")


def pause_of(pauses: ArchivePauses, clock: Hand, topic: str = "orders") -> float:
    """Return the length of the pause, which is over then."""
    began = clock.now
    while is_paused(pauses, topic):
        clock.now += 0.25
    return clock.now - began


def is_paused(pauses: ArchivePauses, topic: str) -> bool:
    try:
        pauses.check(topic)
    except UnavailableError as error:
        return bool(error.message)
    return False


def test_the_pauses_of_a_topic_grow_up_to_a_limit_and_a_success_ends_them() -> None:
    clock = Hand()
    pauses = ArchivePauses(clock)
    assert pause_of(pauses, clock) == 0
    found = []
    for _ in range(7):
        pauses.failed("orders", AWAY)
        assert pause_of(pauses, clock, "trades") == 0
        found.append(pause_of(pauses, clock))
    assert found == [0.5, 1, 2, 4, 8, 10, 10]
    pauses.succeeded("orders")
    pauses.failed("orders", AWAY)
    assert pause_of(pauses, clock) == 0.5


@pytest.mark.parametrize("error", [NotLeaderError("no"), NoQuorumError("no")])
def test_what_says_nothing_about_the_store_makes_no_pause(error: UnavailableError) -> None:
    clock = Hand()
    pauses = ArchivePauses(clock)
    pauses.failed("orders", error)
    assert pause_of(pauses, clock) == 0
