"""Turns the statuses of the members into findings with remedies, for ``viewstamp doctor``. Pure.

Each function below looks for one kind of trouble and says it in one sentence. Every code has a row in
``docs/operating.md`` and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from viewstamp.consensus.membership import Membership
from viewstamp.consensus.standing import majority, wins
from viewstamp.doctor.clocks import clock_trouble, log_time_trouble
from viewstamp.doctor.report import CODES, Finding, ProcessReport, Report, leader_of, node_name
from viewstamp.doctor.status import FULL, divergences, member_id
from viewstamp.ids import NodeId, name_of

__all__ = ["CODES", "Finding", "ProcessReport", "Report", "findings"]

MIB: Final = 1024 * 1024
LATE_MS: Final = 250
"""A loop or a disk that was later than this is near an election timeout, which is 300 ms by default."""

_LOST_POWER: Final = "lost power in interval mode, so its vote counts only if every voter grants one"
_NOBODY_HAS_IT: Final = (
    "nobody makes up what a majority has lost: put the files back that were taken away, as the nodes left them, and "
    "restart these (viewstamp replay reads what is left of several nodes together); or wait, where a log is only being "
    "read"
)


def findings(report: Report) -> list[Finding]:
    """Return what is wrong, what matters most first; [] = all is well."""
    found = [finding for look in _LOOKS for finding in look(report)]
    return sorted(found, key=lambda finding: (CODES.index(finding.code), finding.node))


# The cluster.


def _no_answer(report: Report) -> Iterator[Finding]:
    if not report.up:
        where = ", ".join(
            f"{node['id']} at {node['address']}" if node["id"] else node["address"] for node in report.nodes
        )
        yield Finding(
            code="no_answer",
            node="",
            sentence=f"no node answers ({where}): nothing can be written or read",
            remedy=_start(report),
        )


def _no_leader(report: Report) -> Iterator[Finding]:
    if not report.up or report.leader is not None:
        return
    because, remedy = _why_no_leader(report)
    sentence = f"nobody leads, because {because}; appends and reads wait"
    yield Finding(code="no_leader", node="", sentence=sentence, remedy=remedy)


def _why_no_leader(report: Report) -> tuple[str, str]:
    """Return what stands in the way, and the remedy; where nobody knows the members yet, by all nodes asked."""
    returned = _returned_voters(report)
    for kind, voters in _voter_sets(report.membership) or [("nodes", [node_name(node) for node in report.nodes])]:
        unable = [name for name in voters if name not in returned and _unable(report, name)]
        able = [name for name in voters if name not in unable]
        needed = majority(len(voters))
        if len(able) < needed:
            who = f"only {_and(able)} can vote" if able else "none can vote"
            why = _and(f"{name} {_unable(report, name)}" for name in unable)
            return (
                f"of the {kind} {_and(voters)} {who}, and it takes {needed}: {why}",
                _to_have_votes(report, unable, needed - len(able)),
            )
        heard = {name: [other for other in able if other == name or _hear(report, name, other)] for name in able}
        if all(len(others) < needed for others in heard.values()):
            lines = [
                f"{name} hears {_and(other for other in others if other != name) or 'nobody'}"
                for name, others in heard.items()
            ]
            return (
                f"no member and a majority of the {kind} hear each other: {'; '.join(lines)}",
                _heal(report, "partition")
                or "mend the network between them: each must reach every other one's address",
            )
        full = [name for name in able if (report.node(name) or {}).get("full")]
        if len(able) - len(full) < needed:
            return (
                f"{_and(full)} {_have(full)} no room for what a leader has to write",
                "free space where their data directories are; they go on by themselves",
            )
    return (
        f"an election is under way (term {max((node['term'] or 0 for node in report.up), default=0)})",
        "wait a moment; where the term keeps rising, the members hear each other too late: raise [timeouts] election_ms"
        " on all of them",
    )


def _returned_voters(report: Report) -> list[str]:
    """Return the members that lost power and whose votes count all the same, because every voter is there again."""
    sets = [dict.fromkeys(map(NodeId, report.membership.get(key) or ()), "") for key in ("voters", "outgoing")]
    group = Membership(sets[0], outgoing=sets[1])
    recovering = [name for name in group.electors if _unable(report, name) == _LOST_POWER]
    votes = [name for name in group.electors if name in recovering or not _unable(report, name)]
    return list(map(str, recovering)) if wins(group, votes, recovering, has_waited=False) else []


def _to_have_votes(report: Report, unable: Sequence[str], missing: int) -> str:
    """Say how ``missing`` of those who cannot vote come to do so."""
    nodes = {name: report.node(name) or {"reachable": False} for name in unable}
    if any(node.get("lost_power") for node in nodes.values()):
        away = [name for name, node in nodes.items() if not node["reachable"]]
        start = f"bring back {_and(away)}: {_start(report)}" if away else "wait"
        return (
            f"{start}; after [wal] interval_wait_all_seconds without a leader the others go on, and acknowledged"
            " records may be lost"
        )
    away = [name for name, node in nodes.items() if not node["reachable"]]
    waiting = [name for name, node in nodes.items() if _waits(node)]
    going_on = [
        name
        for name, node in nodes.items()
        if name not in away and name not in waiting and (node.get("repair") or node["lifecycle"] == "bootstrapping")
    ]
    if len(going_on) >= missing:
        return f"wait: {_and(going_on)} will take part by {'itself' if len(going_on) == 1 else 'themselves'}"
    if len(going_on) + len(away) >= missing:
        return f"bring back {missing - len(going_on)} of {_and(away)}: {_start(report)}"
    if away and len(going_on) + len(away) + len(waiting) >= missing:
        return f"bring back {_and(away)}, where what {_and(waiting)} lost may still be: {_start(report)}"
    return _NOBODY_HAS_IT


def _waits(node: Mapping[str, Any]) -> bool:
    """Say whether a node asks in vain for what it lost."""
    return bool((node.get("repair") or {}).get("waits"))


def _change_stuck(report: Report) -> Iterator[Finding]:
    membership = report.membership
    if not membership.get("outgoing"):
        return
    for kind, voters in _voter_sets(membership):
        missing = [name for name in voters if _unable(report, name)]
        if len(voters) - len(missing) < majority(len(voters)):
            yield Finding(
                code="change_stuck",
                node="",
                sentence=f"a change of members is stuck half-way: it needs a majority of the {kind} {_and(voters)}, "
                f"and {_and(f'{name} {_unable(report, name)}' for name in missing)}",
                remedy=f"bring back one of {_and(missing)}: {_start(report)}; the change goes on by itself",
            )


# A node that does not answer.


def _away(report: Report) -> Iterator[Finding]:
    for node in report.nodes:
        name, process = node_name(node), report.processes.get(node_name(node))
        if node["reachable"] or name in _moved(report):
            continue
        if node.get("error_class") in ("WrongClusterError", "WrongNodeError"):
            yield Finding(
                code="wrong_cluster",
                node=name,
                sentence=f"at {node['address']} another node answers than should: {node['error']}",
                remedy="correct the address, or start the member that belongs there",
            )
        elif not node["id"] and report.membership:
            yield Finding(
                code="no_member",
                node=name,
                sentence=f"no member listens at {name}, which is named as an address of the cluster",
                remedy="leave it out, of --cluster or VIEWSTAMP_CLUSTER",
            )
        elif process is None:
            who = f"{node['id']} does not answer" if node["id"] else "nobody answers"
            yield Finding(
                code="down",
                node=name,
                sentence=f"{who} at {node['address']}: {node.get('error') or 'silence'}{_cost(report, name)}",
                remedy="start it where it runs: viewstamp node run --config FILE; or mend the network to it",
            )
        elif process.pid is None:
            yield Finding(
                code="down",
                node=name,
                sentence=f"{name} is not running{process.error and ': '}{process.error}{_cost(report, name)}",
                remedy=process.remedy or report.command(f"cluster restart {name}"),
            )
        elif process.is_paused:
            yield Finding(
                code="paused",
                node=name,
                sentence=f"{name} (process {process.pid}) is paused by a signal{_cost(report, name)}",
                remedy=f"{report.command('chaos heal')}, or kill -CONT {process.pid}",
            )
        else:
            yield Finding(
                code="hung",
                node=name,
                sentence=f"{name} (process {process.pid}) runs and does not answer: {node.get('error') or 'silence'}"
                f"{_cost(report, name)}",
                remedy=f"look into its log.jsonl; then {report.command(f'cluster restart {name}')}",
            )


def _moved(report: Report) -> dict[str, str]:
    """Return the local nodes that the membership has at another address than their settings, and that address.

    "" = the membership is not at hand; what the node has logged names the address.
    """
    recorded: dict[str, str] = {}
    for members in (report.membership.get(kind) or {} for kind in ("outgoing", "learners", "voters")):
        if isinstance(members, Mapping):
            recorded |= {name_of(member): str(address) for member, address in members.items()}
    moved = {}
    for name, process in report.processes.items():
        at = recorded.get(NodeId(name), "")
        if (at and process.address and at != process.address) or (process.is_moved and not at):
            moved[name] = at
    return moved


def _other_address(report: Report) -> Iterator[Finding]:
    for name, at in _moved(report).items():
        process = report.processes[name]
        sentence = f"the membership has {name} at {at}, but its settings say {process.address}" if at else process.error
        back = f"put {at or 'the address that the membership has'} back into the settings of {name}"
        if report.leader is not None:
            remedy = f"where it was moved: {report.command(f'members add {name}')}, which starts it there; else {back}"
        else:
            remedy = (
                f"{back}, because without a majority no move can be recorded; a copy cannot run at other addresses yet"
            )
        yield Finding(code="moved", node=name, sentence=f"{sentence}{_cost(report, name)}", remedy=remedy)


# A node that answers, and takes no part or not yet.


def _refused(report: Report) -> Iterator[Finding]:
    for node in report.up:
        refused_by = node.get("refused_by") or {}
        reasons: dict[str, list[str]] = {}
        for peer, reason in refused_by.items():
            if report.node(peer) is not None:
                reasons.setdefault(str(reason), []).append(str(peer))
        for reason, peers in reasons.items():
            yield Finding(
                code="refused",
                node=node_name(node),
                sentence=f"{node_name(node)} is refused by {_and(peers)}: {reason}",
                remedy="a disk that was replaced comes back as a learner under a new name, by itself or by "
                f"{report.command(f'members replace {node_name(node)}')}; a directory that was moved is put back",
            )


def _not_whole(report: Report) -> Iterator[Finding]:
    for node in report.up:
        name, repair, silent = node_name(node), node.get("repair"), node.get("silent_until")
        if repair:
            total, done = int(repair.get("bytes_total") or 0), int(repair.get("bytes") or 0)
            sentence = str(repair["sentence"])
            if total and repair["from"] and not _waits(node):
                sentence = (
                    f"{name} is repairing {_size(total)} of its log from {repair['from']}: {_size(done)} are there"
                )
            yield Finding(
                code="repairing",
                node=name,
                sentence=sentence,
                remedy=_for_a_repair(report, node),
            )
        elif silent and node.get("lost_power"):
            yield Finding(
                code="silent",
                node=name,
                sentence=f"{name} lost power in interval mode and may lack acknowledged records: it acknowledges"
                " nothing until it holds what its leader holds",
                remedy="wait: it fetches that from the leader",
            )
        elif silent:
            until = f" up to index {silent[1] - 1}" if silent[1] < 1 << 60 else ""
            yield Finding(
                code="silent",
                node=name,
                sentence=f"{name} has lost part of its log: it neither votes nor acknowledges until it has again what "
                f"it had{until}",
                remedy="wait: it fetches that from the leader; it takes a majority of members that are well",
            )
        elif node["lifecycle"] == "bootstrapping":
            yield Finding(
                code="starting",
                node=name,
                sentence=f"{name} is reading its log, and takes no part yet",
                remedy="wait; viewstamp status shows how long a restart takes",
            )


def _for_a_repair(report: Report, node: Mapping[str, Any]) -> str:
    away = [node_name(other) for other in report.nodes if not other["reachable"]]
    if not _waits(node):
        return "wait; it goes on by itself"
    if away:
        return f"bring back {_and(away)}, where it may still be: {_start(report)}"
    return _NOBODY_HAS_IT


def _unheard(report: Report) -> Iterator[Finding]:
    members = {name for _, voters in _voter_sets(report.membership) for name in voters}
    members |= set(report.membership.get("learners") or ())
    lost: dict[str, list[str]] = {}
    running = [node for node in report.up if node["lifecycle"] != "bootstrapping" and member_id(node) in members]
    for node in running:
        for other in running:
            connected, refused = node.get("connected"), node.get("refused_by") or {}
            if (
                node is not other
                and connected is not None
                and member_id(other) not in connected
                and member_id(other) not in refused
            ):
                lost.setdefault(node_name(node), []).append(node_name(other))
    for name, others in lost.items():
        both = [other for other in others if name in lost.get(other, ())]
        one_way = [other for other in others if other not in both]
        # A pair is told once: of the one that has lost more of the others.
        told = [other for other in both if (-len(lost[name]), name) < (-len(lost[other]), other)]
        sides = (
            (told, f"neither {name} nor {_and(told)} can reach the other side, although both run"),
            (one_way, f"{_and(one_way)} cannot hear {name}, which hears {'it' if len(one_way) == 1 else 'them'}"),
        )
        for heard, sentence in sides:
            if heard:
                yield Finding(
                    code="unheard",
                    node=name,
                    sentence=sentence,
                    remedy=_heal(report, "partition") or f"mend the network between {name} and {_and(heard)}",
                )


def _late(report: Report) -> Iterator[Finding]:
    """Look for members that do not have what was committed when the leader was asked a moment before."""
    leader, before = report.leader, leader_of(report.earlier)
    if leader is None:
        return
    membership = report.membership
    joining = membership.get("joining") or {}
    for node in report.up:
        if node is leader or node["lifecycle"] == "bootstrapping":
            continue
        end, goal = node.get("durable_index") or 0, leader["commit_index"] or 0
        lag = f"it has {end:,} of {goal:,} records of the log"
        fetching = node.get("fetching_snapshot") or {}
        if fetching:
            lag = f"it fetches a snapshot, {_size(fetching['bytes'])} of {_size(fetching['size'])}"
        if member_id(node) in joining:
            place = f" in the place of {joining[member_id(node)]}" if joining[member_id(node)] else ""
            yield Finding(
                code="catching_up",
                node=node_name(node),
                sentence=f"{node_name(node)} is a learner and becomes a voter{place} when it has caught up: {lag}",
                remedy=f"wait: {report.command('members list')}",
            )
        elif before is not None and end < (before["commit_index"] or 0):
            yield Finding(
                code="behind",
                node=node_name(node),
                sentence=f"{node_name(node)} is behind: {lag}",
                remedy="it catches up by itself; where it does not, look at its disk, its network and its load",
            )


def _no_member(report: Report) -> Iterator[Finding]:
    membership = report.membership
    if not membership:
        return
    names = {name_of(name) for _, voters in _voter_sets(membership) for name in voters}
    names |= {name_of(name) for name in membership.get("learners") or ()}
    for node in report.nodes:
        name, process = node_name(node), report.processes.get(node_name(node))
        if (node["reachable"] or (process is not None and process.pid is not None)) and name not in names:
            yield Finding(
                code="no_member",
                node=name,
                sentence=f"{name} runs and is no member of the group: {_and(sorted(names))} are",
                remedy=f"{report.command(f'members remove {name}')} stops it"
                if report.is_local
                else f"stop it, or make it one: {report.command(f'members add {name} ADDRESS')}",
            )


# Room, time and what else a node says of itself.


def _room(report: Report) -> Iterator[Finding]:
    for node in report.up:
        name, used, total = node_name(node), node.get("log_bytes") or 0, node.get("log_bytes_max") or 0
        left, segment = node.get("log_bytes_left"), node.get("segment_bytes") or 0
        if node.get("full"):
            reason, remedy = node["full"]
            remedy = _heal(report, "fill-disk", node) or remedy
            if node is report.leader and any(not other.get("full") for other in report.up):
                remedy = f"{report.command('leader transfer')}: one that has room leads then; {remedy}"
            yield Finding(code="full", node=name, sentence=f"{name} takes no appends: {reason}", remedy=remedy)
        elif total and used > FULL * total:
            yield Finding(
                code="nearly_full",
                node=name,
                sentence=f"the log of {name} is {used / total:.0%} full: {_size(used)} of {_size(total)}",
                remedy=f"{report.command('snapshot create')} frees what commands take, viewstamp topic trim what "
                "records take; or raise [wal] bytes_max",
            )
        elif left is not None and left < segment and not total:
            yield Finding(
                code="nearly_full",
                node=name,
                sentence=f"the disk of {name} has no room for another segment: its log takes {_size(left)} more",
                remedy=_heal(report, "fill-disk", node) or "free space where its data directory is",
            )


def _slow(report: Report) -> Iterator[Finding]:
    for node in report.up:
        lag, write = node.get("loop_lag_ms") or 0, node.get("write_ms") or 0
        if lag > LATE_MS:
            yield Finding(
                code="slow_loop",
                node=node_name(node),
                sentence=f"{node_name(node)} was {lag:,.0f} ms late with its own work in the last seconds: the others "
                "may take it for dead",
                remedy="nothing, where it was paused or its machine slept; else give it more processor, or find what "
                "blocks its event loop: an actor's command that takes long",
            )
        if write > max(LATE_MS, lag):  # What is late because the loop is, is no fault of the disk.
            yield Finding(
                code="slow_disk",
                node=node_name(node),
                sentence=f"the disk of {node_name(node)} took {write:,.0f} ms for a write and its sync in the last "
                "seconds",
                remedy=_heal(report, "slow-disk", node)
                or "find what else uses that disk, or give the log a faster one",
            )


def _log_stream(report: Report) -> Iterator[Finding]:
    for node in report.up:
        if why := node.get("log_stream_failure"):
            name = node_name(node)
            lost = f"{name} cannot write its log messages ({why}): {node['log_lines_lost']:,} lines are lost"
            remedy = "make room on the disk where they go, or read the pipe; the node works without"
            yield Finding(code="log_stream", node=name, sentence=lost, remedy=remedy)


def _said(report: Report) -> Iterator[Finding]:
    for node in report.up:
        for path in node.get("damaged_snapshots") or ():
            yield Finding(
                code="damaged_snapshot",
                node=node_name(node),
                sentence=f"a snapshot of {node_name(node)} is damaged, and an older one was taken in its place: {path}",
                remedy=f"check that disk; {report.command('snapshot create')} makes a new one",
            )
        stuck = node.get("stuck_files") or {}
        if stuck:
            path, reason = next(iter(stuck.items()))
            others = f", and {len(stuck) - 1} more" if len(stuck) > 1 else ""
            yield Finding(
                code="stuck_files",
                node=node_name(node),
                sentence=f"{node_name(node)} cannot remove files that it does not need: {reason}{others}",
                remedy=f"find out what holds {path}, or remove it by hand; the node tries again by itself",
            )
        scrubbed = (node.get("scrub") or {}).get("damaged") or ()
        damaged = [path for path in scrubbed if not path.endswith(".snapshot")]  # Of those a new one was taken.
        if damaged:
            yield Finding(
                code="damaged_file",
                node=node_name(node),
                sentence=f"{node_name(node)} found damage in what it had written, when it last looked: {_and(damaged)}",
                remedy="check that disk; who is not alone fetches what it lost, an only voter has nobody to ask: read "
                "what is left with viewstamp replay, before the disk goes",
            )
    suffering = {
        node_name(node): [_in_words(fault) for fault in node["chaos"]] for node in report.up if node.get("chaos")
    }
    if suffering:
        told = "; ".join(f"{name}: {_and(faults)}" for name, faults in suffering.items())
        yield Finding(
            code="chaos",
            node=next(iter(suffering)) if len(suffering) == 1 else "",
            sentence=f"faults are made on purpose: {told}",
            remedy=report.command("chaos heal"),
        )
    for sentence in divergences(report.up):
        yield Finding(
            code="diverged",
            node="",
            sentence=sentence,
            remedy="the odd one stops by itself and says at which command: an actor is not deterministic, or the "
            "members run different code",
        )


def _clock(report: Report) -> Iterator[Finding]:
    for node, sentence, remedy in clock_trouble(report.up, report.seconds):
        yield Finding(code="clock", node=node, sentence=sentence, remedy=remedy)
    for node, sentence, remedy in log_time_trouble(report.leader, report.seconds):
        yield Finding(code="log_time", node=node, sentence=sentence, remedy=remedy)


def _releases(report: Report) -> Iterator[Finding]:
    releases: dict[str, list[str]] = {}
    for node in report.up:
        if node.get("release"):
            releases.setdefault(str(node["release"]), []).append(node_name(node))
    if len(releases) > 1:
        told = _and(
            f"{_and(names)} {'run' if len(names) > 1 else 'runs'} {release}" for release, names in releases.items()
        )
        yield Finding(
            code="releases",
            node="",
            sentence=f"the members run different releases: {told}",
            remedy="bring all of them to the newest, one after the other",
        )


_LOOKS: Final[tuple[Callable[[Report], Iterator[Finding]], ...]] = (
    _no_answer,
    _no_leader,
    _change_stuck,
    _other_address,
    _away,
    _refused,
    _not_whole,
    _unheard,
    _late,
    _no_member,
    _room,
    _slow,
    _log_stream,
    _said,
    _clock,
    _releases,
)


# Words.


def _in_words(fault: Mapping[str, Any]) -> str:
    """Say which fault a node was told to suffer."""
    peers = f" from {_and(fault['peers'])}" if fault["peers"] else ""
    return f"{fault['fault']}{peers}" + (f" by {fault['ms']} ms" if fault["ms"] else "")


def _voter_sets(membership: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the sets of which each needs a majority, with what they are called."""
    voters, outgoing = sorted(membership.get("voters") or ()), sorted(membership.get("outgoing") or ())
    if outgoing:
        return [("new voters", voters), ("voters before", outgoing)]
    return [("voters", voters)] if voters else []


def _unable(report: Report, name: str) -> str:
    """Say why a voter cannot vote; "" = it can."""
    node = report.node(name)
    if node is None:
        return "is not there"
    if not node["reachable"]:
        process = report.processes.get(node_name(node))
        if process is not None and process.pid is not None:
            return "is paused" if process.is_paused else "does not answer"
        return "is down"
    if node.get("repair"):
        return "asks in vain for what its log has lost" if _waits(node) else "is repairing its log"
    if node.get("silent_until"):
        if node.get("lost_power"):
            return _LOST_POWER
        return "is silent until it is repaired"
    if node["lifecycle"] == "bootstrapping":
        return "is still reading its log"
    return "" if member_id(node) == name else "has lost its disk"


def _hear(report: Report, one: str, other: str) -> bool:
    """Say whether two nodes that answer are connected, both ways."""
    first, second = report.node(one), report.node(other)
    return (
        first is not None
        and second is not None
        and other in (first.get("connected") or ())
        and one in (second.get("connected") or ())
    )


def _cost(report: Report, name: str) -> str:
    """Say what the absence of a member costs, to be put behind a sentence about it."""
    for _, voters in _voter_sets(report.membership):
        spare = sum(not _unable(report, voter) for voter in voters) - majority(len(voters))
        if name in [name_of(voter) for voter in voters]:
            if spare < 0:
                return "; without it there is no majority"
            if report.leader is None:
                return ""
            return "; the others go on, and stop when " + ("one more does" if spare == 0 else f"{spare + 1} more do")
    return "; it has no vote, so nothing waits for it" if report.membership else ""


def _start(report: Report) -> str:
    if moved := _moved(report):
        return (
            f"put the old addresses of {_and(moved)} back into their settings, then {report.command('cluster start')}"
        )
    return report.command("cluster start") if report.is_local else "viewstamp node run --config FILE, where each runs"


def _heal(report: Report, fault: str, node: Mapping[str, Any] | None = None) -> str:
    """Return what ends faults of this kind, of one node or any, that were made on purpose; "" = none are in force."""
    made = [each["fault"] for other in report.up if node in (None, other) for each in other.get("chaos") or ()]
    return report.command("chaos heal") if fault in made else ""


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _and(names: Iterable[str]) -> str:
    *others, last = list(names) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _size(count: int) -> str:
    return f"{count / MIB:,.1f} MiB" if count >= MIB else f"{count / 1024:,.1f} KiB" if count >= 1024 else f"{count} B"
