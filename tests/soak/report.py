"""The report of a soak, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.soak.run import Outcome
from viewstamp.terminal.flags import program

__all__ = ["as_json", "print_report"]


def _faults(outcome: Outcome) -> Counter[str]:
    return Counter(event.kind for event in outcome.events if event.is_done)


def as_json(outcome: Outcome, kept: Path | None) -> dict[str, object]:
    """Return the output of ``--output json``.

    ``kept`` is the place of the directories, None = they have been removed.
    """
    return {
        "holds": outcome.holds,
        "seed": outcome.seed,
        "nodes": outcome.nodes,
        "seconds": outcome.seconds,
        "operations": sum(outcome.fates.get(name, 0) for name in ("ok", "refused", "unknown")),
        **outcome.fates,
        "records": outcome.records,
        "faults": dict(sorted(_faults(outcome).items())),
        "longest_unavailable_seconds": round(outcome.unavailable_seconds, 3),
        "elections": outcome.terms,
        "members": outcome.members,
        "linearizable": outcome.linearizable.value,
        "partitions": {
            name: {"answer": each.answer.value, "steps": each.steps, "detail": each.detail}
            for name, each in outcome.judgements.items()
        },
        "ended_by_themselves": [list(each) for each in outcome.ended],
        "violations": outcome.violations,
        "directory": str(kept) if kept is not None else None,
    }


def print_report(outcome: Outcome, kept: Path | None, again: str) -> None:
    """Print the table; for a broken promise, also its name and how to investigate it."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="every promise holds" if outcome.holds else "A PROMISE WAS BROKEN", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(outcome):
        table.add_row(name, value)
    console.print(table)
    for violation in outcome.violations[:20]:
        console.print(f"  {violation}", markup=False, soft_wrap=True)
    if len(outcome.violations) > 20:
        console.print(f"  ... and {len(outcome.violations) - 20} more")
    if kept is not None:
        console.print(_how_to_look(outcome, kept, again), markup=False, soft_wrap=True)


def _rows(outcome: Outcome) -> Iterator[tuple[str, str]]:
    fates = outcome.fates
    total = sum(fates[name] for name in ("ok", "refused", "unknown"))
    yield "seed, nodes, seconds", f"{outcome.seed}, {outcome.nodes}, {outcome.seconds:g}"
    yield "operations", f"{total:,}: {fates['ok']:,} ok, {fates['refused']:,} refused, {fates['unknown']:,} unknown"
    yield "outcomes asked for later", f"{fates['settled']:,}"
    compared = f"{outcome.records:,} on each of {', '.join(outcome.members)}" if outcome.members else "not compared"
    yield "records in the end", compared
    faults = _faults(outcome)
    yield f"{sum(faults.values())} faults", ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
    yield "longest without a write", f"{outcome.unavailable_seconds:.1f} s"
    yield "elections", f"{outcome.terms}" if outcome.terms is not None else "not known"
    if outcome.ended:
        ended = Counter(f"{name} ({error})" for name, error, _ in outcome.ended)
        yield "ended by themselves", ", ".join(f"{name} {count}x" for name, count in ended.items())
    steps = sum(judgement.steps for judgement in outcome.judgements.values())
    yield "linearizable", f"{outcome.linearizable.value}, {len(outcome.judgements)} objects, {steps:,} steps"


def _how_to_look(outcome: Outcome, kept: Path, again: str) -> str:
    command = program()
    return (
        f"\nEverything is in {kept}. To look at it:\n"
        f"  grep fault {kept}/history.jsonl        the faults, in order; the other lines are the operations\n"
        f"  {command} wal verify {kept}/n1         likewise n2, ..., and the lost directories: n1.lost-1\n"
        f"  tail -n 50 {kept}/n1/log.jsonl         the node's log lines\n"
        f"Again, the same faults: {again}"
    )
