"""The policies alone: the decision about a failure."""

from __future__ import annotations

import pytest

from viewstamp.actors import Directive, Failure, Restart, RestartIn


def failure(*ages: float) -> Failure:
    return Failure("a", ValueError(), restarts=ages)


def test_a_directive_is_the_supervisor_that_always_decides_so() -> None:
    for directive in Directive:
        assert directive.decide(failure()) is directive


def test_the_delay_doubles_up_to_its_maximum_and_then_it_is_given_up() -> None:
    restart = Restart(delay_first=0.5, delay_max=3.0, restarts_max=5, window=60.0)
    ages = [10.0] * 6
    assert [restart.decide(failure(*ages[:count])) for count in range(7)] == [
        RestartIn(0.5),
        RestartIn(1.0),
        RestartIn(2.0),
        RestartIn(3.0),
        RestartIn(3.0),
        Directive.ESCALATE,
        Directive.ESCALATE,
    ]


def test_failures_before_the_window_are_forgotten() -> None:
    restart = Restart(delay_first=1.0, restarts_max=2, window=10.0, otherwise=Directive.STOP)
    assert restart.decide(failure(25.0, 9.0)) == RestartIn(2.0)
    assert restart.decide(failure(25.0, 10.0)) == RestartIn(1.0)
    assert restart.decide(failure(9.9, 3.0)) is Directive.STOP


@pytest.mark.parametrize(
    "settings",
    [{"delay_first": 0.0}, {"delay_first": 5.0, "delay_max": 1.0}, {"restarts_max": 101}, {"window": 3.0}],
    ids=["no delay", "shrinks", "more than remembered", "limit out of reach"],
)
def test_settings_without_their_intended_effect_are_refused(settings: dict[str, float]) -> None:
    """With a window of 3 s, five delays of 3.1 s in all would leave it restarting for ever."""
    with pytest.raises(AssertionError):
        Restart(**settings)  # type: ignore[arg-type]
