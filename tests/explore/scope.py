"""The bounds of an exploration, and the inputs that are allowed within them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Scope"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Bounds of one exploration.

    The order of messages, their loss and duplication, and the order in which members act are not bounded.
    """

    members: int = 3
    spares: int = 0
    """Number of further members, which are not in the first membership."""
    terms: int = 2
    """The highest term; no member campaigns for a higher one."""
    records: int = 1
    """Length of the log at which proposals end."""
    crashes: int = 0
    """Total number of crashes with a restart; each keeps any prefix of the pending writes.

    Damages and wipes are crashes.
    """
    announcements: int = 2
    """Highest number of announcements from one leader to one member.

    Messages that would cause another do not arrive.
    """
    changes: int = 0
    """Total number of membership changes."""
    removed: tuple[str, ...] = ()
    """Members that may be removed."""
    added: tuple[str, ...] = ()
    """Members that may be added as voters; "x>y" puts x in the place of y."""

    slow_disks: bool = False
    """Every write takes time, during which its member receives messages.

    If False, only the writes of a leader's own records do; see ``member.py``.
    """
    has_gate: bool = False
    """Explore the whole protocol: a leader begins with a membership record and accepts proposals once it is committed.

    If False, the core runs with ``sync_only`` and accepts proposals at any time, which allows more and keeps logs
    shorter.
    """
    small_appends: bool = False
    """An append carries one batch, so that a follower may store the first and lose the next one."""
    quits: bool = False
    """A leader may step down without a higher term (check-quorum)."""
    tells: bool = False
    """A leader may send members that hold all records a commit index that no append will carry."""
    notices: bool = False
    """A leader may tell members its durable end, so that they find by themselves what is committed."""
    asks: bool = False
    """A leader may time out waiting for members and ask them again."""
    refuses: bool = False
    """Refused votes are answered. A candidate without an answer and one with a refusal can take the same steps."""
    answers_terms: bool = False
    """A request of a lower term is answered with the own term."""
    loses: bool = False
    """A member may take its leader for dead, rightly or wrongly."""
    transfers: bool = False
    """A leader may transfer leadership to a member that holds all records."""
    snapshots: bool = False
    """A member may snapshot its applied records and drop the log before.

    A member that needs those is sent the snapshot.
    """
    damages: bool = False
    """A crash may also lose durable records at the end of the log."""
    powers: bool = False
    """A crash may also be a power loss in interval mode.

    The loss takes records, even acknowledged ones, that were appended since the last write of another kind. Allow one
    crash in all, because the explorer gives all starts of a member the same number (its *life*).
    """
    wipes: bool = False
    """A crash may also lose the whole disk."""
    names: bool = False
    """Disks have names: a leader may meet members, and then names their disks in its membership record."""

    keeps_old: bool = False
    """Keep messages that can no longer have an effect in the code as it is; a mutant may still react to them."""
