"""Ticks are counted as time passes, without a wake-up for each, and correctly after the process was stopped."""

from __future__ import annotations

from dataclasses import dataclass, field

from viewstamp.host.interfaces import Clock
from viewstamp.node.ticker import Ticker


@dataclass
class Alarm:
    """A timer that fires when the test says so."""

    seconds: float
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Hand(Clock):
    """A clock that the test moves."""

    now: float = 1000.0
    alarms: list[Alarm] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def set_alarm(self, seconds: float) -> Alarm:
        self.alarms.append(Alarm(seconds))
        return self.alarms[-1]


TICK = 1 / 64
"""Seconds, and a binary fraction: sums of it are exact."""


def started(ticks: int) -> tuple[Hand, Ticker]:
    hand = Hand()
    ticker = Ticker(hand, TICK, hand.set_alarm)
    ticker.plan(ticks)
    return hand, ticker


def test_a_timer_counts_the_ticks_for_which_it_was_set() -> None:
    hand, ticker = started(20)
    assert ticker.is_resting
    assert [alarm.seconds for alarm in hand.alarms] == [20 * TICK]
    hand.now += 21 * TICK
    ticks, late = ticker.on_timer(hand.now)
    assert (ticks, ticker.count) == (20, 20)
    assert late == TICK


def test_a_message_during_a_rest_counts_the_ticks_passed_and_loses_no_part_of_one() -> None:
    hand, ticker = started(20)
    for _ in range(4):
        hand.now += 2.5 * TICK
        ticker.catch_up()
    assert ticker.count == 10
    ticker.plan(1)
    assert hand.alarms[0].is_cancelled
    assert not ticker.is_resting
    hand.now += hand.alarms[-1].seconds
    assert ticker.on_timer(hand.now)[0] == 1


def test_a_plan_that_ends_later_leaves_the_timer_alone() -> None:
    hand, ticker = started(20)
    hand.now += 5 * TICK
    assert ticker.catch_up() == 5
    ticker.plan(20)
    assert len(hand.alarms) == 1
    hand.now += 15 * TICK
    assert ticker.on_timer(hand.now)[0] == 15
    ticker.plan(20)
    assert hand.alarms[-1].seconds == 20 * TICK


def test_a_plan_that_moves_the_timer_sets_it_later() -> None:
    hand, ticker = started(20)
    hand.now += 5 * TICK
    assert ticker.catch_up() == 5
    ticker.plan(20, moves=True)
    assert hand.alarms[0].is_cancelled
    assert hand.alarms[-1].seconds == 20 * TICK
    ticker.plan(20, moves=True)
    assert len(hand.alarms) == 2, "it is set for that tick already"


def test_a_process_that_was_stopped_counts_no_more_than_its_timer_was_set_for() -> None:
    """Messages of the leader may wait unread in the sockets of the stopped process.

    If the hour counted as a time without a message, the member would campaign against a healthy leader.
    """
    hand, ticker = started(10)
    hand.now += 3600.0
    assert ticker.catch_up() == 10
    assert ticker.on_timer(hand.now)[0] == 0
    assert ticker.count == 10
    ticker.plan(1)
    hand.now += 3600.0
    assert ticker.on_timer(hand.now)[0] == 1


def test_a_timer_that_has_fired_is_not_counted_twice() -> None:
    hand, ticker = started(10)
    hand.now += 10 * TICK
    assert ticker.catch_up() + ticker.on_timer(hand.now)[0] == 10
    ticker.plan(5)
    assert len(hand.alarms) == 2
    assert hand.alarms[-1].seconds == 5 * TICK
