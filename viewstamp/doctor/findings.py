"""Turns the statuses of the members into findings with remedies, for ``viewstamp doctor``. Pure.

Each function below looks for one kind of problem and describes it in one sentence: what happened, and its effect on the
cluster. Every code has a row in ``docs/operating.md`` and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from viewstamp.consensus.membership import Membership
from viewstamp.consensus.standing import majority, wins
from viewstamp.doctor.archive import archive_trouble
from viewstamp.doctor.clocks import clock_trouble, log_time_trouble
from viewstamp.doctor.groups import group_trouble
from viewstamp.doctor.report import CODES, Finding, ProcessReport, Report, and_list, leader_of, node_name
from viewstamp.doctor.security import security_trouble
from viewstamp.doctor.status import FULL, divergences, is_rejected, member_id
from viewstamp.ids import NodeId, name_of
from viewstamp.quantities import rounded_size

__all__ = ["CODES", "Finding", "ProcessReport", "Report", "findings"]

MIB: Final = 1024 * 1024
LATE_MS: Final = 250
"""A loop or a disk with a delay above this is near an election timeout, which is 300 ms by default."""

_LOST_POWER: Final = "lost power in interval mode, so its vote counts only if every voter grants one"
_LOST_ON_ALL: Final = (
    "no member that answers holds the lost records: restore the missing files as the nodes left them, and restart "
    "those nodes (`viewstamp replay` recovers the records that several damaged nodes hold together). While a member "
    "still reads its log, wait for it"
)


def findings(report: Report) -> list[Finding]:
    """Return the problems, the most important first; [] = there is none."""
    found = [finding for look in _LOOKS for finding in look(report)]
    return sorted(found, key=lambda finding: (CODES.index(finding.code), finding.node))


# The cluster.


def _no_answer(report: Report) -> Iterator[Finding]:
    if not report.up and not any(map(is_rejected, report.nodes)):
        where = ", ".join(
            f"{node['id']} at {node['address']}" if node["id"] else node["address"] for node in report.nodes
        )
        yield Finding(
            code="no_answer",
            node="",
            sentence=f"no node answers ({where}): records can be neither appended nor read",
            remedy=_start(report),
        )


def _no_leader(report: Report) -> Iterator[Finding]:
    if not report.up or report.leader is not None:
        return
    because, remedy = _why_no_leader(report)
    sentence = f"there is no leader, because {because}; appends and reads wait"
    yield Finding(code="no_leader", node="", sentence=sentence, remedy=remedy)


def _why_no_leader(report: Report) -> tuple[str, str]:
    """Return the reason, and the remedy. While no node reports the voters, all asked nodes count as such."""
    returned = _returned_voters(report)
    for kind, voters in _voter_sets(report.membership) or [("nodes", [node_name(node) for node in report.nodes])]:
        unable = [name for name in voters if name not in returned and _why_no_vote(report, name)]
        able = [name for name in voters if name not in unable]
        needed = majority(len(voters))
        if len(able) < needed:
            only = f"only {and_list(able)} can vote" if able else "none can vote"
            reasons = and_list(f"{name} {_why_no_vote(report, name)}" for name in unable)
            return (
                f"{needed} of the {kind} {and_list(voters)} are needed, and {only}: {reasons}",
                _to_have_votes(report, unable, needed - len(able)),
            )
        links = {
            name: [other for other in able if other == name or _are_connected(report, name, other)] for name in able
        }
        if all(len(others) < needed for others in links.values()):
            lines = [
                f"{name} is connected to {and_list(other for other in others if other != name) or 'none'}"
                for name, others in links.items()
            ]
            return (
                f"no voter is connected to a majority of the {kind}: {'; '.join(lines)}",
                _heal(report, "partition")
                or "repair the network between them: each must reach the addresses of all others",
            )
        full = [name for name in able if (report.node(name) or {}).get("full")]
        if len(able) - len(full) < needed:
            return (
                f"{and_list(full)} {_have(full)} no disk space for the records that a leader writes",
                "free space on the disks of their data directories; the nodes continue by themselves",
            )
    return (
        f"an election is under way (term {max((node['term'] or 0 for node in report.up), default=0)})",
        "wait a moment; if the term keeps rising, messages between the members take too long: raise [timeouts]"
        " election_ms on all of them",
    )


def _returned_voters(report: Report) -> list[str]:
    """Return the voters that lost power, and that may vote nevertheless, because every voter answers."""
    sets = [dict.fromkeys(map(NodeId, report.membership.get(key) or ()), "") for key in ("voters", "outgoing")]
    group = Membership(sets[0], outgoing=sets[1])
    recovering = [name for name in group.electors if _why_no_vote(report, name) == _LOST_POWER]
    votes = [name for name in group.electors if name in recovering or not _why_no_vote(report, name)]
    return list(map(str, recovering)) if wins(group, votes, recovering, has_waited=False) else []


def _to_have_votes(report: Report, unable: Sequence[str], missing: int) -> str:
    """Return how ``missing`` of the ``unable`` voters can vote again."""
    nodes = {name: report.node(name) or {"reachable": False} for name in unable}
    if any(node.get("lost_power") for node in nodes.values()):
        unreachable = [name for name, node in nodes.items() if not node["reachable"]]
        start = f"bring back {and_list(unreachable)}: {_start(report)}" if unreachable else "wait"
        return (
            f"{start}; if there is no leader within [wal] interval_wait_all_seconds, the others continue, and"
            " acknowledged records may be lost"
        )
    unreachable = [name for name, node in nodes.items() if not node["reachable"]]
    stuck = [name for name, node in nodes.items() if _is_stuck(node)]
    recovering = [
        name
        for name, node in nodes.items()
        if name not in unreachable
        and name not in stuck
        and (node.get("repair") or node["lifecycle"] == "bootstrapping")
    ]
    if len(recovering) >= missing:
        return (
            f"wait: {and_list(recovering)} will vote again when {'it is' if len(recovering) == 1 else 'they are'} ready"
        )
    if len(recovering) + len(unreachable) >= missing:
        recover = report.command("recover") if report.is_local else "`viewstamp recover --config FILE`"
        lost = f"if their disks are lost for good, stop the others and run {recover}"
        return f"bring back {missing - len(recovering)} of {and_list(unreachable)}: {_start(report)}; {lost}"
    if unreachable and len(recovering) + len(unreachable) + len(stuck) >= missing:
        lost = and_list(stuck)
        return f"bring back {and_list(unreachable)}, which may hold the records that {lost} lost: {_start(report)}"
    return _LOST_ON_ALL


def _is_stuck(node: Mapping[str, Any]) -> bool:
    """Return whether no member that answers can give a node the records that it lost."""
    return bool((node.get("repair") or {}).get("waits"))


def _change_stuck(report: Report) -> Iterator[Finding]:
    membership = report.membership
    if not membership.get("outgoing"):
        return
    for kind, voters in _voter_sets(membership):
        missing = [name for name in voters if _why_no_vote(report, name)]
        if len(voters) - len(missing) < majority(len(voters)):
            yield Finding(
                code="change_stuck",
                node="",
                sentence="a change of members cannot complete: it needs a majority of the "
                f"{kind} {and_list(voters)}, and "
                f"{and_list(f'{name} {_why_no_vote(report, name)}' for name in missing)}",
                remedy=f"bring back one of {and_list(missing)}: {_start(report)}; the change then continues by itself",
            )


# A node that does not answer.


def _unreachable(report: Report) -> Iterator[Finding]:
    for node in report.nodes:
        name, process = node_name(node), report.processes.get(node_name(node))
        if node["reachable"] or name in _moved(report):
            continue
        if node.get("error_class") in ("WrongClusterError", "WrongNodeError"):
            yield Finding(
                code="wrong_cluster",
                node=name,
                sentence=f"another node than expected answers at {node['address']}: {node['error']}",
                remedy="correct the address, or start the member that belongs there",
            )
        elif is_rejected(node):
            yield Finding(
                code="rejected",
                node=name,
                sentence=f"{node['id'] or 'the node'} at {node['address']} rejects this command: {node['error']}",
                remedy=str(node.get("remedy") or "give the command the certificate of a client"),
            )
        elif not node["id"] and report.membership:
            yield Finding(
                code="no_member",
                node=name,
                sentence=f"no member listens at {name}, which was given as an address of the cluster",
                remedy="remove it from --cluster or VIEWSTAMP_CLUSTER",
            )
        elif process is None:
            subject = f"{node['id']} does not answer" if node["id"] else "no node answers"
            yield Finding(
                code="down",
                node=name,
                sentence=f"{subject} at {node['address']}: {node.get('error') or 'no response'}{_cost(report, name)}",
                remedy="start it on its machine, by its service or `viewstamp node run --config FILE`; or repair the "
                "network to it",
            )
        elif process.pid is None:
            yield Finding(
                code="down",
                node=name,
                sentence=f"{name} is not running{process.error and ': '}{process.error}{_cost(report, name)}",
                remedy=process.remedy or f"run {report.command(f'cluster restart {name}')}",
            )
        elif process.is_paused:
            yield Finding(
                code="paused",
                node=name,
                sentence=f"{name} (process {process.pid}) is paused by a signal{_cost(report, name)}",
                remedy=f"run {report.command('chaos heal')}, or `kill -CONT {process.pid}`",
            )
        else:
            yield Finding(
                code="hung",
                node=name,
                sentence=f"{name} (process {process.pid}) runs but does not answer: "
                f"{node.get('error') or 'no response'}{_cost(report, name)}",
                remedy=f"read its log.jsonl; then run {report.command(f'cluster restart {name}')}",
            )


def _moved(report: Report) -> dict[str, str]:
    """Return each local node that has another address in its settings than in the membership, and the latter address.

    "" = the membership is unknown; then the node's own log reported the difference.
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
            remedy = f"if it was moved: run {report.command(f'members add {name}')}, which starts it there; else {back}"
        else:
            remedy = (
                f"{back}; or, if all members have moved, stop them and run `viewstamp node readdress"
                " --without-majority --config FILE` on each; or, if this is a copy, `viewstamp cluster fork` begins a"
                " new cluster"
            )
        yield Finding(code="moved", node=name, sentence=f"{sentence}{_cost(report, name)}", remedy=remedy)


# A node that answers but does not take part yet.


def _refused(report: Report) -> Iterator[Finding]:
    members = _members(report.membership) if report.membership else None
    for node in report.up:
        if members is not None and node_name(node) not in members:
            continue  # The finding no_member has the reason, for example that the member was removed.
        refused_by = node.get("refused_by") or {}
        reasons: dict[str, list[str]] = {}
        for peer, reason in refused_by.items():
            if report.node(peer) is not None:
                reasons.setdefault(str(reason), []).append(str(peer))
        for reason, peers in reasons.items():
            yield Finding(
                code="refused",
                node=node_name(node),
                sentence=f"{node_name(node)} is refused by {and_list(peers)}: {reason}",
                remedy="a member with a new disk returns as a learner under a new name, by itself or by "
                f"{report.command(f'members replace {node_name(node)}')}; if its directory was moved, put it back",
            )


def _incomplete(report: Report) -> Iterator[Finding]:
    for node in report.up:
        name, repair, silent = node_name(node), node.get("repair"), node.get("silent_until")
        if repair:
            total, done = int(repair.get("bytes_total") or 0), int(repair.get("bytes") or 0)
            sentence = str(repair["sentence"])
            if total and repair["from"] and not _is_stuck(node):
                sentence = (
                    f"{name} is repairing {rounded_size(total)} of its log from {repair['from']}:"
                    f" {rounded_size(done)} are done"
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
                " nothing until it holds all records of its leader",
                remedy="wait: it fetches them from the leader",
            )
        elif silent:
            until = f" up to index {silent[1] - 1}" if silent[1] < 1 << 60 else ""
            yield Finding(
                code="silent",
                node=name,
                sentence=f"{name} has lost part of its log: it neither votes nor acknowledges until it has all records "
                f"again{until}",
                remedy="wait: it fetches them from the leader, which needs a majority of healthy members",
            )
        elif node["lifecycle"] == "bootstrapping":
            yield Finding(
                code="starting",
                node=name,
                sentence=f"{name} is reading its log, and does not take part yet",
                remedy="wait; `viewstamp status` shows how long a restart takes",
            )


def _for_a_repair(report: Report, node: Mapping[str, Any]) -> str:
    unreachable = [node_name(other) for other in report.nodes if not other["reachable"]]
    if not _is_stuck(node):
        return "wait; it continues by itself"
    if unreachable:
        return f"bring back {and_list(unreachable)}, which may hold the records: {_start(report)}"
    return _LOST_ON_ALL


def _disconnected(report: Report) -> Iterator[Finding]:
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
        # A pair is reported once: for the node that has lost more connections.
        reported = [other for other in both if (-len(lost[name]), name) < (-len(lost[other]), other)]
        sides = (
            (reported, f"{name} and {and_list(reported)} run, but cannot reach each other"),
            (one_way, f"messages from {name} do not reach {and_list(one_way)}; those in the other direction arrive"),
        )
        for others_cut, sentence in sides:
            if others_cut:
                yield Finding(
                    code="unheard",
                    node=name,
                    sentence=sentence,
                    remedy=_heal(report, "partition")
                    or f"repair the network between {name} and {and_list(others_cut)}",
                )


def _behind(report: Report) -> Iterator[Finding]:
    """Yield members that lack records which were committed when the leader was asked a moment before."""
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
            lag = f"it is fetching a snapshot, {rounded_size(fetching['bytes'])} of {rounded_size(fetching['size'])}"
        if member_id(node) in joining:
            place = f" in place of {joining[member_id(node)]}" if joining[member_id(node)] else ""
            yield Finding(
                code="catching_up",
                node=node_name(node),
                sentence=f"{node_name(node)} is a learner and becomes a voter{place} when it has caught up: {lag}",
                remedy=f"wait; to see its progress: {report.command('members list')}",
            )
        elif before is not None and end < (before["commit_index"] or 0):
            yield Finding(
                code="behind",
                node=node_name(node),
                sentence=f"{node_name(node)} is behind: {lag}",
                remedy="it catches up by itself; if it does not, check its disk, its network and its load",
            )


def _applying(report: Report) -> Iterator[Finding]:
    for node in report.up:
        if reason := (node.get("not_ready") or {}).get("applied"):
            yield Finding(
                code="applying",
                node=node_name(node),
                sentence=f"{node_name(node)} is slow to apply the log, so it is not ready: {reason}",
                remedy="wait; if the gap grows, find the command of an actor that takes long",
            )


def _members(membership: Mapping[str, Any]) -> set[str]:
    """Return the names of the voters and learners, of both halves of a change."""
    names = {name_of(name) for _, voters in _voter_sets(membership) for name in voters}
    return names | {name_of(name) for name in membership.get("learners") or ()}


def _no_member(report: Report) -> Iterator[Finding]:
    membership = report.membership
    if not membership:
        return
    names = _members(membership)
    for node in report.nodes:
        name, process = node_name(node), report.processes.get(node_name(node))
        if (node["reachable"] or (process is not None and process.pid is not None)) and name not in names:
            yield Finding(
                code="no_member",
                node=name,
                sentence=f"{name} runs and is no member of the group; the members are {and_list(sorted(names))}",
                remedy=f"{report.command(f'members remove {name}')} stops it"
                if report.is_local
                else f"stop it, or add it: {report.command(f'members add {name} ADDRESS')}",
            )


# Disk space, delays, and other problems that a node reports about itself.


def _room(report: Report) -> Iterator[Finding]:
    for node, status, place in report.parts:
        name, used, total = node_name(node), status.get("log_bytes") or 0, status.get("log_bytes_max") or 0
        left, segment = status.get("log_bytes_left"), status.get("segment_bytes") or 0
        if status.get("full"):
            reason, remedy = status["full"]
            remedy = _heal(report, "fill-disk", node) or remedy
            if status is report.leader and any(not other.get("full") for other in report.up):
                remedy = f"run {report.command('leader transfer')}, so that a member with space leads; {remedy}"
            yield Finding(code="full", node=name, sentence=f"{place} rejects appends: {reason}", remedy=remedy)
        elif total and used > FULL * total:
            yield Finding(
                code="nearly_full",
                node=name,
                sentence=f"the log of {place} is {used / total:.0%} full:"
                f" {rounded_size(used)} of {rounded_size(total)}",
                remedy=f"{report.command('snapshot create')} frees the space of commands, `viewstamp topic trim` that "
                "of records; or raise [wal] bytes_max",
            )
        elif left is not None and left < segment and not total:
            yield Finding(
                code="nearly_full",
                node=name,
                sentence=f"the disk of {name} has no space for another segment: its log takes {rounded_size(left)}"
                " more",
                remedy=_heal(report, "fill-disk", node) or "free space on the disk of its data directory",
            )


def _slow(report: Report) -> Iterator[Finding]:
    for node in report.up:
        lag, write = node.get("loop_lag_ms") or 0, node.get("write_ms") or 0
        if lag > LATE_MS:
            yield Finding(
                code="slow_loop",
                node=node_name(node),
                sentence=f"the event loop of {node_name(node)} was {lag:,.0f} ms late in the last seconds; other "
                "members may take the node for dead",
                remedy="if it was paused, or its machine slept, do nothing; else give it more processor time, or find "
                "the code that blocks its event loop, for example a slow command of an actor",
            )
        if write > max(LATE_MS, lag):  # A late event loop also delays writes; that is not the disk's fault.
            yield Finding(
                code="slow_disk",
                node=node_name(node),
                sentence=f"a write and its sync took {write:,.0f} ms on the disk of {node_name(node)} in the last "
                "seconds",
                remedy=_heal(report, "slow-disk", node)
                or "find the other users of that disk, or move the log to a faster one",
            )


def _log_stream(report: Report) -> Iterator[Finding]:
    for node in report.up:
        if why := node.get("log_stream_failure"):
            name = node_name(node)
            lost = f"{name} cannot write its log messages ({why}): {node['log_lines_lost']:,} lines are lost"
            remedy = "free space on their disk, or read the pipe; the node works without them"
            yield Finding(code="log_stream", node=name, sentence=lost, remedy=remedy)


def _self_reported(report: Report) -> Iterator[Finding]:
    for node, status, place in report.parts:
        for path in status.get("damaged_snapshots") or ():
            yield Finding(
                code="damaged_snapshot",
                node=node_name(node),
                sentence=f"a snapshot of {place} is damaged, and an older one was used instead: {path}",
                remedy=f"check that disk; {report.command('snapshot create')} takes a new snapshot",
            )
        stuck = status.get("stuck_files") or {}
        if stuck:
            path, reason = next(iter(stuck.items()))
            others = f", and {len(stuck) - 1} more" if len(stuck) > 1 else ""
            yield Finding(
                code="stuck_files",
                node=node_name(node),
                sentence=f"{place} cannot delete files that it does not need: {reason}{others}",
                remedy=f"find the process that uses {path}, or delete it by hand; the node tries again by itself",
            )
        scrubbed = (status.get("scrub") or {}).get("damaged") or ()
        damaged = [path for path in scrubbed if not path.endswith(".snapshot")]  # Damaged snapshots were replaced.
        if damaged:
            yield Finding(
                code="damaged_file",
                node=node_name(node),
                sentence=f"{place} found damage in its own files at its last check: {and_list(damaged)}",
                remedy="check that disk; a node repairs its log from other members. The only voter of a cluster "
                "cannot: recover its records with `viewstamp replay` before the disk fails",
            )
    suffering = {
        node_name(node): [_describe(fault) for fault in node["chaos"]] for node in report.up if node.get("chaos")
    }
    if suffering:
        listed = "; ".join(f"{name}: {and_list(faults)}" for name, faults in suffering.items())
        yield Finding(
            code="chaos",
            node=next(iter(suffering)) if len(suffering) == 1 else "",
            sentence=f"faults are injected on purpose: {listed}",
            remedy=f"run {report.command('chaos heal')}",
        )
    for sentence in divergences(report.up):
        yield Finding(
            code="diverged",
            node="",
            sentence=sentence,
            remedy="the member that differs stops by itself and names the command: an actor is not deterministic, or "
            "the members run different code",
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
        listed = and_list(
            f"{and_list(names)} {'run' if len(names) > 1 else 'runs'} {release}" for release, names in releases.items()
        )
        yield Finding(
            code="releases",
            node="",
            sentence=f"the members run different releases: {listed}",
            remedy="upgrade all of them to the newest, one after the other",
        )


_LOOKS: Final[tuple[Callable[[Report], Iterator[Finding]], ...]] = (
    _no_answer,
    _no_leader,
    _change_stuck,
    _other_address,
    _unreachable,
    _refused,
    _incomplete,
    _disconnected,
    _behind,
    _applying,
    _no_member,
    _room,
    _slow,
    _log_stream,
    _self_reported,
    _clock,
    _releases,
    group_trouble,
    archive_trouble,
    security_trouble,
)


# Words.


def _describe(fault: Mapping[str, Any]) -> str:
    """Return an injected fault in words."""
    peers = f" from {and_list(fault['peers'])}" if fault["peers"] else ""
    return f"{fault['fault']}{peers}" + (f" by {fault['ms']} ms" if fault["ms"] else "")


def _voter_sets(membership: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the sets of voters that each need a majority, with their names in sentences."""
    voters, outgoing = sorted(membership.get("voters") or ()), sorted(membership.get("outgoing") or ())
    if outgoing:
        return [("new voters", voters), ("voters before", outgoing)]
    return [("voters", voters)] if voters else []


def _why_no_vote(report: Report, name: str) -> str:
    """Return why a voter cannot vote; "" = it can."""
    node = report.node(name)
    if node is None:
        return "is unknown"
    if not node["reachable"]:
        process = report.processes.get(node_name(node))
        if process is not None and process.pid is not None:
            return "is paused" if process.is_paused else "does not answer"
        return "is down"
    if node.get("repair"):
        return "has lost records that no member can give it" if _is_stuck(node) else "is repairing its log"
    if node.get("silent_until"):
        if node.get("lost_power"):
            return _LOST_POWER
        return "does not vote until its log is repaired"
    if node["lifecycle"] == "bootstrapping":
        return "is still reading its log"
    return "" if member_id(node) == name else "has lost its disk"


def _are_connected(report: Report, one: str, other: str) -> bool:
    """Return whether two nodes that answer are connected, in both directions."""
    first, second = report.node(one), report.node(other)
    return (
        first is not None
        and second is not None
        and other in (first.get("connected") or ())
        and one in (second.get("connected") or ())
    )


def _cost(report: Report, name: str) -> str:
    """Return the cost of a member's absence, to be appended to a sentence about it."""
    for _, voters in _voter_sets(report.membership):
        spare = sum(not _why_no_vote(report, voter) for voter in voters) - majority(len(voters))
        if name in [name_of(voter) for voter in voters]:
            if spare < 0:
                return "; without it there is no majority"
            if report.leader is None:
                return ""
            return "; the cluster works, and stops when " + (
                "one more fails" if spare == 0 else f"{spare + 1} more fail"
            )
    return "; it has no vote, so the cluster does not need it" if report.membership else ""


def _start(report: Report) -> str:
    if moved := _moved(report):
        return (
            f"put the old addresses of {and_list(moved)} back into their settings, then run "
            f"{report.command('cluster start')}"
        )
    if report.is_local:
        return f"run {report.command('cluster start')}"
    return "run `viewstamp node run --config FILE` on each machine"


def _heal(report: Report, fault: str, node: Mapping[str, Any] | None = None) -> str:
    """Return the remedy for injected faults of this kind, on one node or any; "" = there are none."""
    made = [each["fault"] for other in report.up if node in (None, other) for each in other.get("chaos") or ()]
    return f"run {report.command('chaos heal')}" if fault in made else ""


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
