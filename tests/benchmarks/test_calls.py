"""The number of Python calls of one append has a limit, so that no change makes a round more expensive unnoticed."""

from __future__ import annotations

import sys
from collections import Counter

from benchmarks.calls import ROLES, Counts, calls_of_appends, per_role

CALLS_MAX = {"leader": 143, "follower": 78, "client": 33}
"""The limit for each role: the calls of one append on Python 3.11, plus 2. Later versions make fewer calls.

To renew it, run ``python -m benchmarks.calls`` and write its figures here, each with 2 added. A commit that raises a
limit gives the reason in its body. A commit that removes calls lowers the limit.
"""

_ROOM = 20
"""A count may be this far below its limit. If it is lower, the test fails, because the limit should be lowered."""


def test_an_append_makes_no_more_calls_than_it_did() -> None:
    measured = calls_of_appends()
    counted = per_role(measured)
    assert all(counted[role] <= CALLS_MAX[role] for role in ROLES), (
        f"an append makes {counted} calls, at most {CALLS_MAX} are allowed; each is about 1 us of a round."
        " `python -m benchmarks.calls --functions 300 --role leader` lists them (follower-1, client). If the new calls"
        f" are worth it, raise CALLS_MAX in {__file__}, with the reason in the commit. The most called functions:"
        f" {_most_called(measured[-1])}"
    )
    is_measured_version = sys.version_info[:2] == (3, 11)
    assert not is_measured_version or all(counted[role] > CALLS_MAX[role] - _ROOM for role in ROLES), (
        f"an append makes only {counted} calls: lower CALLS_MAX in {__file__}, so that the saving is kept"
    )


def test_the_count_is_the_same_each_time() -> None:
    assert calls_of_appends(appends=10) == calls_of_appends(appends=10)


def _most_called(counts: Counts) -> str:
    return ", ".join(f"{'.'.join(key[1:])} {calls}" for key, calls in Counter(counts).most_common(12))
