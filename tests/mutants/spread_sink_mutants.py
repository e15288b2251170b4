"""Planted mistakes in batches of sinks over several groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

import tests.streams.test_spread_commits as histories
from tests.mutants.mutants import Mutant, patched
from viewstamp.node import sink_parts
from viewstamp.node.ordering import Ordering
from viewstamp.node.placer import Placer
from viewstamp.node.sink_part_queries import GroupPart, PartFates
from viewstamp.streams import staging
from viewstamp.streams.spread_commits import SpreadCommits
from viewstamp.streams.state import State
from viewstamp.wire.batch import Batch
from viewstamp.wire.ordering import StreamReport

__all__ = ["SPREAD_SINK_MUTANTS"]


@contextmanager
def _rule(name: str, rule: object) -> Iterator[None]:
    """Replace a rule of a leader, for nodes and for histories."""
    with ExitStack() as stack:
        for module in (sink_parts, histories):
            stack.enter_context(patched(module, **{name: rule}))
        yield


def drop_unknown_attempts() -> AbstractContextManager[None]:
    def over(self: State, attempts: Iterable[int]) -> frozenset[int]:
        return frozenset(attempts) - (self.commits.attempts() | self.staging.attempts.keys())

    return patched(State, _over=over)


def drop_committed_parts() -> AbstractContextManager[None]:
    def over(self: State, attempts: Iterable[int]) -> frozenset[int]:
        return frozenset(each for each in attempts if each < self.end and each not in self.staging.attempts)

    return patched(State, _over=over)


def report_placed_parts() -> AbstractContextManager[None]:
    def cut_reports(reports: list[StreamReport], parts: dict[int, GroupPart], fates: PartFates) -> list[StreamReport]:
        return reports

    return _rule("cut_reports", cut_reports)


def place_in_any_order() -> AbstractContextManager[None]:
    original = sink_parts.lacking_records

    def lacking_records(parts: dict[int, GroupPart], fates: PartFates) -> list[tuple[int, Batch]]:
        return original(parts, replace(fates, pending=fates.pending[::-1]))

    return _rule("lacking_records", lacking_records)


def release_apart() -> AbstractContextManager[None]:
    """The state of group 0 believes the leader."""
    return patched(SpreadCommits, check_release=lambda self, *arguments: None)


def seal_before_parts() -> AbstractContextManager[None]:
    return patched(State, check_sealable=lambda self, batch: None)


def parts_have_an_age() -> AbstractContextManager[None]:
    return patched(staging, _PART_SECONDS=3600)


def parts_unprobed() -> AbstractContextManager[None]:
    async def check_parts(self: Placer) -> None:
        return

    return patched(Placer, check_parts=check_parts)


def place_in_the_next_round() -> AbstractContextManager[None]:
    return patched(Ordering, on_decision=lambda self: None)


def report_in_the_next_round() -> AbstractContextManager[None]:
    return patched(Ordering, on_order=lambda self: None)


SPREAD_SINK_MUTANTS = {
    name: Mutant(name, mistake, plant, rule="§7")
    for name, mistake, plant in (
        (
            "drop-unknown-attempts",
            "a leader drops the part of an attempt that its state of group 0 does not have yet",
            drop_unknown_attempts,
        ),
        ("drop-committed-parts", "a leader drops a part that group 0 has committed", drop_committed_parts),
        ("report-placed-parts", "the order passes over one part of a batch", report_placed_parts),
        ("place-in-any-order", "two groups place two batches in different orders", place_in_any_order),
        ("release-apart", "an ORDER makes a part of a batch visible without the others", release_apart),
        ("seal-before-parts", "a stream is sealed before a part that is sealed in its group", seal_before_parts),
        ("parts-unprobed", "a member of an earlier release gets records about parts", parts_unprobed),
        ("place-in-the-next-round", "the parts of a batch wait for a round", place_in_the_next_round),
        ("report-in-the-next-round", "the appends behind a batch wait for a round", report_in_the_next_round),
        ("parts-have-an-age", "a group drops a sealed part because it is old", parts_have_an_age),
    )
}
"""The mutants by name."""
