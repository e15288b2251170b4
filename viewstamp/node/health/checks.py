"""Decides whether a node is alive and whether it is ready, from the fields of its status. Pure.

*Alive* answers whether a restart of the process could help. *Ready* answers whether the node can serve requests now.
A node that waits for a majority is alive and not ready: to restart it would change nothing.

| check | of | fails while |
| --- | --- | --- |
| ``running`` | livez, readyz | a part of the node has failed; of readyz also while the node stops |
| ``event_loop`` | livez | never: if the event loop does not turn, no answer is sent, and the probe times out |
| ``disk`` | livez, readyz | the disk thread has not answered for 30 s (livez) or 5 s (readyz) |
| ``log_replayed`` | readyz | the node reads its log at its start |
| ``repaired`` | readyz | records that it has lost are fetched from other members, or it does not vote because of that |
| ``member`` | readyz | the membership does not name the node |
| ``leader`` | readyz | no leader is known: the last one was not heard for an election timeout |
| ``disk_room`` | readyz | appends are rejected, because the log or its disk is full |
| ``applied`` | readyz | more than ``APPLY_LAG_MAX`` committed records are not applied yet |
| ``groups`` | readyz, if groups are placed on the node | the node cannot serve an established one: it has failed, is \
being opened or joined, or has no known leader. So a rolling restart waits for the groups too |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["APPLY_LAG_MAX", "Check", "liveness", "readiness"]

APPLY_LAG_MAX: Final = 10_000
"""Committed records that a ready node may have not applied yet. A loaded node has some hundreds in each turn."""

_LIVE_DISK_SECONDS: Final = 30.0
"""A stall of a network disk may take this long and end by itself; a restart in it would only add a replay."""
_READY_DISK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One named check: whether it holds, and why."""

    name: str
    is_ok: bool
    reason: str


def liveness(status: Mapping[str, Any]) -> list[Check]:
    """Return the checks of ``/livez`` for a node's status, as ``Node.vital_signs`` returns it."""
    return [
        _running(status),
        Check("event_loop", True, f"at most {status.get('loop_lag_ms', 0.0):g} ms late in the last seconds"),
        _disk(status, _LIVE_DISK_SECONDS),
    ]


def readiness(status: Mapping[str, Any]) -> list[Check]:
    """Return the checks of ``/readyz`` for a node's status, as ``Node.vital_signs`` returns it."""
    checks = [_serving(status), _disk(status, _READY_DISK_SECONDS), _replayed(status), _repaired(status)]
    if checks[2].is_ok:  # Before that the other fields are unknown.
        checks += [_member(status), _leader(status), _room(status), _applied(status)]
        if "unserved" in status:
            checks.append(_groups(status))
    return checks


def _running(status: Mapping[str, Any]) -> Check:
    failure = status["failure"]
    return Check("running", not failure, str(failure) if failure else "no part has failed")


def _serving(status: Mapping[str, Any]) -> Check:
    return Check("running", False, "the node is stopping") if status["stopping"] else _running(status)


def _disk(status: Mapping[str, Any], seconds_max: float) -> Check:
    seconds = status["disk_seconds"]
    if seconds > seconds_max:
        return Check("disk", False, f"the disk has not answered for {seconds:.0f} s, limit {seconds_max:g} s")
    return Check("disk", True, "the disk answers" if seconds < 1 else f"the disk has been busy for {seconds:.0f} s")


def _replayed(status: Mapping[str, Any]) -> Check:
    is_done = status["lifecycle"] != "bootstrapping"
    return Check("log_replayed", is_done, "the log is replayed" if is_done else "the log is being replayed")


def _repaired(status: Mapping[str, Any]) -> Check:
    if repair := status.get("repair"):
        return Check("repaired", False, str(repair["sentence"]))
    if status.get("silent_until"):
        return Check("repaired", False, "it does not vote until it has the records again that it has lost")
    return Check("repaired", True, "no record of the log is missing")


def _member(status: Mapping[str, Any]) -> Check:
    name = status["member_id"]
    if name in status["members"]:
        return Check("member", True, f"{name} is a member")
    return Check("member", False, f"{name} is no member; the members are {', '.join(sorted(status['members']))}")


def _leader(status: Mapping[str, Any]) -> Check:
    leader, term = status["leader"], status["term"]
    if leader is None:
        return Check("leader", False, f"no leader is known in term {term}; `viewstamp doctor` names the reason")
    return Check("leader", True, f"{leader} leads in term {term}")


def _room(status: Mapping[str, Any]) -> Check:
    full = status.get("full")
    return Check("disk_room", not full, str(full[0]) if full else "the log has room")


def _applied(status: Mapping[str, Any]) -> Check:
    applied, committed = status["applied_index"], status["commit_index"]
    reason = f"{applied:,} of {committed:,} committed records are applied"
    return Check("applied", committed - applied <= APPLY_LAG_MAX, reason)


def _groups(status: Mapping[str, Any]) -> Check:
    unserved = status["unserved"]
    reasons = "; ".join(f"group {group}: {reason}" for group, reason in unserved.items())
    return Check("groups", not unserved, reasons or "all groups of the node are served")
