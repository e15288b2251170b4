"""Planted mistakes in the recovery of several groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, patched
from viewstamp.client.merge import Merge
from viewstamp.streams import recovering
from viewstamp.streams.recovering import _Planner, _Rest

__all__ = ["RECOVERY_MUTANTS"]


def recover_keeps_the_order() -> AbstractContextManager[None]:
    return patched(_Planner, _is_changed=lambda self, rest: False)


def recover_gives_positions_again() -> AbstractContextManager[None]:
    return patched(_Planner, _facts_of=lambda self, topic: [])


def recover_moves_ordered_records() -> AbstractContextManager[None]:
    original = _Planner._extend

    def extend(self: Any, rest: _Rest, false_from: int | None) -> None:
        original(self, rest, false_from)
        rest.given_up = rest.state is None

    return patched(_Planner, _extend=extend)


def recover_believes_each_order() -> AbstractContextManager[None]:
    return patched(_Planner, _false_from=lambda self: None)


def recover_shows_a_part() -> AbstractContextManager[None]:
    return patched(_Planner, _is_whole=lambda self, commit: True)


def recover_places_behind_a_dropped_part() -> AbstractContextManager[None]:
    """The streams of a dropped batch go on, so a part of it gets positions in its topic."""
    return patched(_Planner, _give_up_placed=lambda self, group, part: None)


def recover_counts_a_dropped_batch() -> AbstractContextManager[None]:
    original = _Planner._last_batch

    def last_batch(self: Any, sink: str) -> int:
        before = original(self, sink)
        present = self._state.staging.sinks.get(sink)
        return before if present is None else max(before, present.batch)

    return patched(_Planner, _last_batch=last_batch)


def recover_keeps_old_parts() -> AbstractContextManager[None]:
    original = _Planner._plan_group

    def plan_group(self: Any, group: Any, old: Any) -> None:
        original(self, group, old)
        records = self._plan._groups.get(group, [])
        records[:] = [each for each in records if each.func is not recovering.encode_drop]

    return patched(_Planner, _plan_group=plan_group)


def recover_keeps_unknown_streams() -> AbstractContextManager[None]:
    original = _Planner._plan_group

    def plan_group(self: Any, group: Any, old: Any) -> None:
        original(self, group, old)
        records = self._plan._groups.get(group, [])
        records[:] = [each for each in records if each.func is not recovering.encode_set_aside]

    return patched(_Planner, _plan_group=plan_group)


def recover_hides_what_is_missing() -> AbstractContextManager[None]:
    return patched(_Planner, _holes=lambda self, topic, rests: [])


def recover_leaves_no_stream() -> AbstractContextManager[None]:
    """A topic of which no stream can go on is left without one."""
    original = _Planner._give_up

    def give_up(self: Any, topic: Any, rests: Sequence[Any]) -> list[Callable[[], Any]]:
        records = original(self, topic, rests)
        return [each for each in records if getattr(each, "func", None) is not recovering.encode_add_stream]

    return patched(_Planner, _give_up=give_up)


def read_over_lost_positions() -> AbstractContextManager[None]:
    """A reader goes on behind lost positions as if there were none."""
    original = Merge.check

    def check(self: Any, lost: tuple[int, int] = (0, 0)) -> None:
        if self.is_blocked and lost[0] <= self.position < lost[1]:
            self.skip_to(min([lost[1], *(lane.pieces[0].position for lane in self.lanes.values() if lane.pieces)]))
            return
        original(self, lost)

    return patched(Merge, check=check)


_MEANINGS: Mapping[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {
    "recover-keeps-the-order": ("the order names records that are gone", recover_keeps_the_order),
    "recover-gives-positions-again": (
        "positions of ORDERs that only the streams know are given to others",
        recover_gives_positions_again,
    ),
    "recover-moves-ordered-records": (
        "records that had positions which nobody knows get others",
        recover_moves_ordered_records,
    ),
    "recover-believes-each-order": (
        "an ORDER that was never committed contradicts the maps of streams",
        recover_believes_each_order,
    ),
    "recover-shows-a-part": ("a batch of a sink that lacks a part stays pending", recover_shows_a_part),
    "recover-places-behind-a-dropped-part": (
        "a stream with a part of a dropped batch goes on",
        recover_places_behind_a_dropped_part,
    ),
    "recover-counts-a-dropped-batch": (
        "a sink is told that its dropped batch is committed",
        recover_counts_a_dropped_batch,
    ),
    "recover-keeps-old-parts": ("parts of attempts stay that group 0 does not know", recover_keeps_old_parts),
    "recover-keeps-unknown-streams": (
        "streams stay under the names of topics that group 0 does not know",
        recover_keeps_unknown_streams,
    ),
    "recover-hides-what-is-missing": ("lost positions are not named", recover_hides_what_is_missing),
    "recover-leaves-no-stream": ("a topic is left without an open stream", recover_leaves_no_stream),
    "read-over-lost-positions": ("a reader skips lost positions", read_over_lost_positions),
}
RECOVERY_MUTANTS = {name: Mutant(name, text, plant, rule="note 0033") for name, (text, plant) in _MEANINGS.items()}
"""The mutants by name."""
