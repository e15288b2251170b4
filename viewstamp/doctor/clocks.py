"""Compares clocks, for ``viewstamp status`` and ``viewstamp doctor``: the offset of each node, and of log time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

__all__ = ["CLOCK_SECONDS", "Trouble", "clock_trouble", "in_words", "log_time_trouble", "offset", "seconds_ahead"]

CLOCK_SECONDS: Final = 1.0
"""Seconds by which clocks may differ, in addition to the time that it took to ask the members."""

_SHOWN_SECONDS: Final = 0.05
"""An offset below this is shown as 0.0 s, without a sign."""

Trouble = tuple[str, str, str]
"""(node, sentence, remedy); node "" = the cluster."""


def clock_trouble(nodes: Sequence[Mapping[str, Any]], seconds: float) -> Iterator[Trouble]:
    """Yield the wrong clocks of nodes that answered; asking them took at most ``seconds``."""
    bound = max((node["clock"]["bound_seconds"] for node in nodes if node.get("clock")), default=10.0)
    for node in nodes:
        clock = node.get("clock") or {}
        if clock.get("is_alone") and abs(clock.get("offset_seconds") or 0) > bound:
            yield (
                str(node["id"]),
                f"the clock of {node['id']} has jumped by {in_words(clock['offset_seconds'])} while it ran; in ten "
                "minutes the log takes over its time, and retention by age counts with it",
                "if that clock is wrong, correct it with NTP within these ten minutes",
            )
    clocks = sorted((node["clock_us"] / 1e6, str(node["id"])) for node in nodes if node.get("clock_us"))
    if len(clocks) < 2:
        return
    middle = median_low(clocks)
    for shown, name in clocks:
        difference = shown - middle[0]
        if abs(difference) > CLOCK_SECONDS + seconds:
            yield (
                name,
                f"the clock of {name} is {in_words(difference)} {'ahead of' if difference > 0 else 'behind'} that of "
                f"{middle[1]}: while {name} leads, record timestamps and retention by age are off by "
                f"{in_words(min(abs(difference), bound))}",
                "synchronise both machines' clocks with NTP",
            )


def log_time_trouble(leader: Mapping[str, Any] | None, seconds: float) -> Iterator[Trouble]:
    """Yield a finding if the newest record is ahead of the clocks; asking the leader took at most ``seconds``."""
    ahead = seconds_ahead(leader or {})
    if leader is not None and ahead > seconds:
        yield (
            "",
            f"the newest record is {in_words(ahead)} ahead of the clocks, as {leader['id']} reports: a clock was "
            f"wrong, or those of a majority are behind. Until the clocks catch up, in {in_words(2 * ahead)} at the "
            "latest, log time runs at half the rate, so leases, sessions and retention by age last twice as long",
            "synchronise every machine's clock with NTP; if that wait is too long: docs/operating.md, Clocks",
        )


def seconds_ahead(node: Mapping[str, Any]) -> float:
    """Return the seconds that log time is ahead of the clocks, as a node reports it; 0 within the allowed bound."""
    clock = node.get("clock") or {"ahead_seconds": 0.0, "bound_seconds": 0.0}
    ahead = float(clock["ahead_seconds"])
    return ahead if ahead > clock["bound_seconds"] + CLOCK_SECONDS else 0.0


def offset(node: Mapping[str, Any]) -> str | None:
    """Return the offset of a node's clock from that of a majority, as text; None = unknown."""
    found = (node.get("clock") or {}).get("offset_seconds")
    if found is None:
        return None
    sign = "" if abs(found) < _SHOWN_SECONDS else "-" if found < 0 else "+"
    return f"{sign}{in_words(found)}"


def in_words(seconds: float) -> str:
    """Return a duration in its two largest units, for example "2 h 5 min"."""
    units = [("years", 365 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
    left = abs(seconds)
    for (unit, size), (below, below_size) in pairwise(units):
        if left >= size:
            return f"{left // size:.0f} {unit} {left % size // below_size:.0f} {below}"
    return f"{left:.1f} s"
