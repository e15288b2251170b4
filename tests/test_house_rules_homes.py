"""House rules that keep each rule in one home, by finding any other place that decides it again.

Each has a second test that shows it an offender.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.sources import MODULES, PACKAGE, ROOT, offenders, place, tree
from viewstamp.wire.requests import REQUESTS

DOORS = ("host", "sim", "cli", "local", "demo", "bench", "terminal")
"""The subpackages that may use clocks and random numbers.

All others get them as arguments, so that a seed decides all.
"""

EXCEPTIONS = {
    "actors/replicated/actor.py": "a command's dice, seeded from its place in the log",
    "archive/s3_store.py": "the door to object stores: names of the objects that prove a store",
    "archive/store_watch.py": "the door to object stores: its thread and its times are not simulated",
    "backup/fsspec_store.py": "the door to object stores: its threads, time limits and leases are not simulated",
    "config/create.py": "chooses free ports and identities once, for a person at the command line; never in a node",
    "embed": "composes the real host, with the operating system's entropy",
    "spark": "composes clients with the real network, in processes that Spark starts",
    "trio/client.py": "composes a client with the real network, as embed does for asyncio",
}
"""Further paths under ``viewstamp/`` that may use clocks and random numbers, with the reason."""


def uses_of_the_outside(module: ast.Module) -> Iterator[str]:
    """Yield sleeps, clocks and random numbers that are not passed in, because they make runs of one seed differ.

    ``random.Random`` is allowed as a type, and as a generator that a caller seeded; creating one is not.
    """
    forbidden = {
        "time": {"sleep", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"},
        "random": None,  # the whole module
        "uuid": {"uuid1", "uuid4"},
        "secrets": None,
        "os": {"urandom", "getrandom"},
        "datetime": {"now", "utcnow", "today"},
    }
    types = {"Random"}
    made = {id(node.func) for node in ast.walk(module) if isinstance(node, ast.Call)}
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name(id=source), attr=used) if source in forbidden:
                names = forbidden[source]
                if (names is None or used in names) and not (used in types and id(node) not in made):
                    yield f"line {node.lineno}: {source}.{used}"
            case ast.ImportFrom(module=str(source)) if source in forbidden:
                names = forbidden[source]
                for alias in node.names:
                    if (names is None or alias.name in names) and alias.name not in types:
                        yield f"line {node.lineno}: from {source} import {alias.name}"
            case ast.Call(func=ast.Name(id="Random")):
                yield f"line {node.lineno}: Random(...)"


def test_clock_and_dice_are_handed_in() -> None:
    def rule(path: Path) -> Iterator[str]:
        package = place(path).partition("/")[0]
        if package not in DOORS and package not in EXCEPTIONS and place(path) not in EXCEPTIONS:
            yield from uses_of_the_outside(tree(path))

    assert offenders(MODULES, rule) == []


def test_the_rule_about_clock_and_dice_finds_them() -> None:
    source = """
import random, time
from random import Random, choice
def f(entropy: random.Random, other: Random) -> None:
    time.sleep(1); time.time(); random.random(); random.Random(1); Random(2); entropy.random(); loop.time()
"""
    assert sorted(uses_of_the_outside(ast.parse(source))) == [
        "line 3: from random import choice",
        "line 5: Random(...)",
        "line 5: random.Random",
        "line 5: random.random",
        "line 5: time.sleep",
        "line 5: time.time",
    ]


def test_every_exception_to_a_rule_is_still_there() -> None:
    assert [place for place in EXCEPTIONS if not (PACKAGE / place).exists()] == []


def frames_named(module: ast.Module, homes: frozenset[str]) -> Iterator[str]:
    """Yield mentions of a kind of frame outside its home, because its body would be packed or read by hand there."""
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name(id="FrameKind"), attr=kind) if kind in homes:
                yield f"line {node.lineno}: FrameKind.{kind}"


def test_requests_and_hellos_are_packed_and_read_in_one_place() -> None:
    """``wire/requests.py`` and ``wire/handshake.py`` do it, so that both sides agree on keys, types and ranges.

    Nodes once had a list of fields, clients packed maps by hand, and a HELLO was made in five places.
    """
    homes = frozenset({row.kind.name for row in REQUESTS.values()} | {"HELLO"})

    def rule(path: Path) -> Iterator[str]:
        if place(path) != "sim/stranger.py" and place(path).partition("/")[0] != "wire":
            yield from frames_named(tree(path), homes)  # The stranger sends a HELLO, and waits for no answer.

    assert offenders(MODULES, rule) == []


def test_the_rule_about_frames_finds_them() -> None:
    source = "encode_frame(FrameKind.READ, {'topic': 1}); encode_frame(FrameKind.OK, {'id': 1})"
    assert list(frames_named(ast.parse(source), frozenset({"READ"}))) == ["line 1: FrameKind.READ"]


def counts_of_votes(module: ast.Module, *, may_look: bool) -> Iterator[str]:
    """Yield places that count votes: that take the number of voters or, with ``may_look`` False, use voters at all."""
    sets = {"voters", "electors", "outgoing"}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id="len" | "sum"), args=[ast.Attribute(attr=found)]) if found in sets:
                yield f"line {node.lineno}: the number of {found}"
            case ast.Attribute(attr=found) if found in sets and not may_look:
                yield f"line {node.lineno}: {found}"


def test_votes_are_counted_in_one_place() -> None:
    """``consensus/standing.py`` decides majorities; the offline replay once did so by rules of its own.

    The replay may not even read the sets of voters. ``membership.py`` is exempt, because a membership rejects the
    removal of its last voter.
    """
    looks = {"consensus": True, "node": True, "replay": False, "spark": False}

    def rule(path: Path) -> Iterator[str]:
        package = place(path).partition("/")[0]
        if package in looks and path.name not in ("standing.py", "membership.py"):
            yield from counts_of_votes(tree(path), may_look=looks[package])

    assert offenders(MODULES, rule) == []


def test_the_rule_about_votes_finds_them() -> None:
    source = """
present = sum(member in membership.voters for member in members)
enough = 2 * present > len(membership.voters)
"""
    assert sorted(counts_of_votes(ast.parse(source), may_look=True)) == ["line 3: the number of voters"]
    assert sorted(counts_of_votes(ast.parse(source), may_look=False)) == [
        "line 2: voters",
        "line 3: the number of voters",
        "line 3: voters",
    ]


MAJORITIES = {
    "consensus/standing.py": "their home",
    "errors.py": "words an error for a thin client, which may not import consensus",
}
"""Files under ``viewstamp/`` that may compute a majority, with the reason."""


def majorities(module: ast.Module) -> Iterator[str]:
    """Yield places that halve a number as for a majority: ``n // 2 + 1``, ``(n - 1) // 2``, or an own ``majority``."""

    def is_half(node: ast.AST) -> bool:
        return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) and ast.unparse(node.right) == "2"

    for node in ast.walk(module):
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=1)) if is_half(left):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.BinOp(left=ast.BinOp(op=ast.Sub(), right=ast.Constant(value=1))) if is_half(node):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.FunctionDef(name="majority" | "is_majority" | "quorum"):
                yield f"line {node.lineno}: def {node.name}"
            case ast.Name(id="majority" | "quorum", ctx=ast.Store()):
                yield f"line {node.lineno}: {node.id} ="


def test_majorities_are_computed_in_one_place() -> None:
    """The doctor, the benchmarks and the demo once did so by themselves, and the doctor forgot a rule of elections."""

    def rule(path: Path) -> Iterator[str]:
        if place(path) not in MAJORITIES:
            yield from majorities(tree(path))

    assert offenders(MODULES, rule) == []
    assert [each for each in MAJORITIES if not list(majorities(tree(PACKAGE / each)))] == []


def test_the_rule_about_majorities_finds_them() -> None:
    source = """
needed = len(voters) // 2 + 1
spare = (voters - 1) // 2
majority = half(nodes)
middle = (low + high) // 2
"""
    assert sorted(majorities(ast.parse(source))) == [
        "line 2: len(voters) // 2 + 1",
        "line 3: (voters - 1) // 2",
        "line 4: majority =",
    ]


MEASURING = {
    "conditions": "viewstamp/bench/conditions.py",
    "cpu_seconds": "viewstamp/local/process.py",
    "own_cluster": "viewstamp/bench/cluster.py",
    "own_directory": "viewstamp/bench/cluster.py",
    "percentile": "viewstamp/bench/load.py",
}
"""Functions that the benchmarks of the command and those of the checkout once defined separately, with their home."""


def test_both_systems_of_benchmarks_measure_with_one_library() -> None:
    """Figures that were computed in two ways cannot be compared."""
    found: dict[str, list[str]] = {each: [] for each in MEASURING}
    for path in [*MODULES, *sorted((ROOT / "benchmarks").rglob("*.py"))]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in MEASURING:
                found[node.name].append(path.relative_to(ROOT).as_posix())
    assert {each: [home] for each, home in MEASURING.items()} == found


SCANNERS = {
    "wal/format.py": "the bytes of one header",
    "wal/scan.py": "their home",
    "sim/disk_log.py": "checks the log from outside, so it must not share its mistakes",
}
"""Files under ``viewstamp/`` that may parse the headers of segments and groups, with the reason."""

DECIDERS = {
    "wal/verdict.py": "their home",
}
"""Files under ``viewstamp/`` that may decide by the facts of a log's end."""


def parsed_headers(module: ast.Module) -> Iterator[str]:
    """Yield places that read a header of a segment or a group from bytes, or search for one."""
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name(id="GroupHeader" | "SegmentHeader"), attr="decode" | "measure"):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Name(id="GROUP_MAGIC", ctx=ast.Load()):
                yield f"line {node.lineno}: GROUP_MAGIC"
            case ast.ClassDef(name="GroupHeader" | "SegmentHeader"):
                yield f"line {node.lineno}: {node.name}"


def decided_ends(module: ast.Module) -> Iterator[str]:
    """Yield places that judge the end of a log, by the decision table or by a later group."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id="decide" | "Decision")):
                yield f"line {node.lineno}: {ast.unparse(node.func)}"
            case ast.Attribute(attr="durable", value=ast.Attribute(attr="later")):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_segments_are_parsed_in_one_place() -> None:
    """Seven readers of the same bytes once disagreed, and a replay left out acknowledged records."""

    def rule(path: Path) -> Iterator[str]:
        if place(path) not in SCANNERS:
            yield from parsed_headers(tree(path))

    assert offenders(MODULES, rule) == []
    assert [each for each in SCANNERS if not list(parsed_headers(tree(PACKAGE / each)))] == []


def test_the_end_of_a_log_is_judged_in_one_place() -> None:
    def rule(path: Path) -> Iterator[str]:
        if place(path) not in DECIDERS:
            yield from decided_ends(tree(path))

    assert offenders(MODULES, rule) == []
    assert [each for each in DECIDERS if not list(decided_ends(tree(PACKAGE / each)))] == []


def test_the_rules_about_segments_find_them() -> None:
    source = """
group = GroupHeader.decode(view)
size = GroupHeader.measure(view)
header = SegmentHeader.decode(view, path)
hit = chunk.find(GROUP_MAGIC)
"""
    assert sorted(parsed_headers(ast.parse(source))) == [
        "line 2: GroupHeader.decode",
        "line 3: GroupHeader.measure",
        "line 4: SegmentHeader.decode",
        "line 5: GROUP_MAGIC",
    ]
    assert list(decided_ends(ast.parse("row = decide({Fact.ENDS})"))) == ["line 1: decide"]


def judged_errors(module: ast.Module) -> Iterator[str]:
    """Yield places where a part of a client checks the class of a node's answer to decide its reaction."""
    judged = {"NotLeaderError", "OverloadedError", "RequestError"}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from (
                f"line {node.lineno}: {each.id}"
                for each in ast.walk(node.args[1])
                if isinstance(each, ast.Name) and each.id in judged
            )


def test_a_client_decides_its_reaction_to_errors_in_one_place() -> None:
    """``client/routing.py`` has the table; the sender, the leader's and any node's requests once had one each."""

    def rule(path: Path) -> Iterator[str]:
        if place(path).startswith("client/") and path.name != "routing.py":
            yield from judged_errors(tree(path))

    assert offenders(MODULES, rule) == []


def test_the_rule_about_errors_finds_them() -> None:
    source = (
        "if isinstance(error, RequestError | StorageFullError) or isinstance(error, (NotLeaderError, KeyError)): pass"
    )
    assert sorted(judged_errors(ast.parse(source))) == [
        "line 1: NotLeaderError",
        "line 1: RequestError",
    ]


def hooks_patched_in(module: ast.Module) -> Iterator[str]:
    """Yield callbacks that other code assigns to an object after its creation: ``other.on_change = ...``."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            match target:
                case ast.Attribute(value=ast.Name(id="self")):
                    pass
                case ast.Attribute(attr=hook) if hook.startswith("on_"):
                    yield f"line {node.lineno}: {ast.unparse(target)}"


def test_a_part_of_a_node_is_complete_when_it_is_made() -> None:
    """The neighbours of a part are arguments of its constructor, so that ``node/parts.py`` shows all connections."""
    paths = [path for path in MODULES if place(path).startswith("node/")]
    assert offenders(paths, lambda path: hooks_patched_in(tree(path))) == []


def test_the_rule_about_hooks_finds_them() -> None:
    source = "self.on_a = 1\nreplica.on_change = tell\nself._peers.on_connected: object = tell\nreplica.name = 1\n"
    assert list(hooks_patched_in(ast.parse(source))) == [
        "line 2: replica.on_change",
        "line 3: self._peers.on_connected",
    ]


def ends_asked(module: ast.Module) -> Iterator[str]:
    """Yield queries about the ends of streams."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StreamReportsQuery":
            yield f"line {node.lineno}: StreamReportsQuery"


def test_the_ends_that_a_node_reports_are_cut_in_one_place() -> None:
    """``SinkParts.reports`` ends a report before a part of a batch that is not visible: else ORDER shows it alone."""
    homes = {
        "node/sink_parts.py": "cuts them",
        "node/order_waits.py": "looks at the ends of the maps only",
        "node/stream_topics.py": "looks at the ends of the maps only",
    }

    def rule(path: Path) -> Iterator[str]:
        if place(path).startswith("node/") and place(path) not in homes:
            yield from ends_asked(tree(path))

    assert offenders(MODULES, rule) == []


def test_the_rule_about_ends_finds_them() -> None:
    source = "reports = machine.query(StreamReportsQuery(group))\nqueries: list[StreamReportsQuery] = []\n"
    assert list(ends_asked(ast.parse(source))) == ["line 1: StreamReportsQuery"]


def members_probed(module: ast.Module) -> Iterator[str]:
    """Yield probes of the members."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "find_unfit" for alias in node.names):
            yield f"line {node.lineno}: find_unfit"


def test_whether_all_members_can_read_a_record_is_decided_in_one_place() -> None:
    """``fitness.py`` probes again when the members change meanwhile; the archivist, which probed by itself, did not."""

    def rule(path: Path) -> Iterator[str]:
        if place(path) != "node/fitness.py":
            yield from members_probed(tree(path))

    assert offenders(MODULES, rule) == []


def test_the_rule_about_probes_finds_them() -> None:
    source = "from viewstamp.node.peers.probe import Unfit, find_unfit\nfrom viewstamp.node.peers.probe import Unfit\n"
    assert list(members_probed(ast.parse(source))) == ["line 1: find_unfit"]
