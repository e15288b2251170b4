"""Messages with arbitrary numbers in a member's name: one that breaks a rule changes nothing, and nothing else fails.

The sender passed for a member, so a message that keeps the rules is accepted. The receiver must not fail with an
assertion of its own, because that would stop the node, and hide the two errors that describe the problem.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.consensus.group import Group, record
from viewstamp.consensus import messages as m
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Core, Leading
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import BrokenRuleError, ContradictionError, PeerError
from viewstamp.ids import Index, NodeId, Term
from viewstamp.wire.batch import Batch

SEEDS = 4000 if os.environ.get("VIEWSTAMP_SOAK") else 150
TIMERS = {"ticks_since_leader", "ticks_since_message"}
"""Fields that any message of the leader changes, because it shows that the leader is alive."""


@cache
def group(kind: str) -> Group:
    """Return three members led by n1, with batches of several records, the last of which are uncommitted."""
    made = Group(3)
    made.elect("n1")
    made.run(5)
    for count in (3, 1, 4):
        made.propose("n1", *[b"%d" % count] * count)
    if kind != "fresh":
        made.run(5)
        made.propose("n1", b"x", b"y", b"z")
        made.deliver(m.AppendRequest, target="n2")
    if kind == "second":
        made.elect("n2", "n2", "n3")
        made.run(5)
        made.propose("n2", b"p", b"q")
    return made


def forged(core: Core, entropy: random.Random) -> m.Message:
    """Return a message with numbers that are close to fitting ones."""
    others = [NodeId(name) for name in ("n1", "n2", "n3", "n9") if name != core.me]
    term = max(0, core.term + entropy.choice((-1, 0, 0, 0, 0, 1, 1, 2, 1 << 33, 1 << 61)))
    head = {"source": entropy.choice(others), "target": core.me, "term": Term(min(term, m.NUMBER_END - 1))}
    log = core.log
    leading = core.state if isinstance(core.state, Leading) else None
    term_start = leading.term_start if leading is not None else 0
    edges = (0, 1, log.commit_end, log.durable_end, log.end, term_start, m.NUMBER_END - 1)

    def index() -> int:
        return max(0, min(entropy.choice(edges) + entropy.choice((-2, -1, 0, 0, 0, 1, 2)), m.NUMBER_END - 1))

    def number() -> int:
        numbers = [each.number for each in leading.progress.values()] if leading is not None else []
        known = [core.announced_number, *numbers]
        return max(0, entropy.choice(known) + entropy.choice((0, 0, 0, 1, 7)))

    def history() -> TermHistory:
        starts = [tuple(start) for start in core.history.starts if entropy.random() < 0.8]
        if entropy.random() < 0.7:
            starts.append((head["term"], index()))
        if entropy.random() < 0.2 and starts:
            at = entropy.randrange(len(starts))
            starts[at] = (starts[at][0], index())
        return TermHistory(starts)

    def batches() -> tuple[Batch, ...]:
        first, made = entropy.choice((log.end, log.end, log.end, index() or 1)), []
        for _ in range(entropy.choice((0, 1, 1, 2))):
            batch_term = entropy.choice((core.term, core.term, head["term"], 1))
            count = entropy.choice((1, 3))
            if first >= m.NUMBER_END - 5 or batch_term >= m.NUMBER_END:
                break
            made.append(record(batch_term, first, count=count))
            first += count
        return tuple(made)

    values: dict[str, Callable[[], Any]] = {
        "Term": lambda: entropy.choice((core.term, head["term"], max(0, core.term - 1))),
        "Index": index,
        "bool": lambda: entropy.random() < 0.5,
        "int": number,
        "TermHistory": history,
        "tuple[Batch, ...]": batches,
    }
    kind = entropy.choice([each for each in m.MESSAGES if each is not m.BatchesRead])
    body = {
        name: values[str(each.type)]()
        for name, each in kind.__dataclass_fields__.items()
        if name not in ("source", "target", "term")
    }
    return kind(**head, **body)


def picture(core: Core) -> dict[str, str]:
    """Return the whole state of a member, as text."""
    shown = {name: repr(value) for name, value in vars(core).items() if name not in ("entropy", *TIMERS)}
    return shown | {"log": repr({name: str(value) for name, value in vars(core.log).items()})}


@pytest.mark.parametrize("kind", ["fresh", "second", "third"])
@pytest.mark.parametrize("me", ["n1", "n2", "n3"])
def test_a_forged_message_is_refused_whole_or_accepted(me: str, kind: str) -> None:
    refused = contradicted = 0
    for seed in range(SEEDS):
        entropy = random.Random(f"{me} {kind} {seed}")
        original = group(kind)[me].raft
        assert original is not None
        raft: Raft = copy.deepcopy(original)
        raft.ready()
        for _ in range(3):
            try:
                message = forged(raft.core, entropy)
            except PeerError:
                continue  # This is no valid history, so the codec refuses it.
            before = picture(raft.core)
            try:
                raft.step(message)
            except (BrokenRuleError, ContradictionError) as error:
                refused += isinstance(error, BrokenRuleError)
                contradicted += isinstance(error, ContradictionError)
                assert picture(raft.core) == before, f"seed {seed}: {message}"
                continue
            while (ready := raft.ready()) is not None:
                if ready.durable is not None:
                    raft.durable(ready.durable)
                    for each in ready.messages_after_durable:
                        if each.target == raft.core.me:
                            raft.step(each)
            raft.tick(0)
    assert refused > SEEDS // 20
    assert contradicted or SEEDS < 1000


def test_indices_of_the_greatest_numbers_are_refused() -> None:
    raft = copy.deepcopy(group("fresh")["n2"].raft)
    assert raft is not None
    batch = record(1, int(raft.core.log.end))
    batch.log_time = 1 << 62
    message = m.AppendRequest(
        source=NodeId("n1"),
        target=NodeId("n2"),
        term=raft.core.term,
        number=raft.core.announced_number,
        start=raft.core.log.end,
        previous_term=raft.core.history.term_at(Index(raft.core.log.end - 1)),
        commit_end=Index(1),
        batches=(batch,),
    )
    with pytest.raises(BrokenRuleError, match="log time"):
        raft.step(message)
