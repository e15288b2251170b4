"""How much of the world is explored: the bounds, and what may happen within them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Scope"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Bounds of one exploration.

    What is not bounded: in which order messages arrive, how often, and which never do; in which order members act.
    """

    members: int = 3
    spares: int = 0
    """So many members more, that are not in the first membership."""
    terms: int = 2
    """Nobody stands for a term above this one."""
    records: int = 1
    """Nothing is proposed to a log that holds so many records."""
    crashes: int = 0
    """Crashes with a restart, in all; each keeps any prefix of the writes under way. Damage and wipes are crashes."""
    announcements: int = 2
    """The most announcements of one leader to one member; what would lead to one more does not arrive."""
    changes: int = 0
    """Changes of the membership, in all."""
    removed: tuple[str, ...] = ()
    """Who may be removed."""
    added: tuple[str, ...] = ()
    """Who may be added, as a voter; "x>y": x in the place of y."""

    slow_disks: bool = False
    """Every write takes time, in which its member hears others. Without: only a leader's own records do; see
    ``member.py``."""
    has_gate: bool = False
    """The whole protocol: a leader begins with a membership record, and takes proposals when it is committed. Without:
    the core's ``sync_only``, and proposals at any time, which is more than it allows, and has shorter logs."""
    quits: bool = False
    """A leader may step down without a higher term (check-quorum)."""
    tells: bool = False
    """A leader may tell its members, that hold everything, of a commit that no append will carry."""
    asks: bool = False
    """A leader may lose patience, and ask the members anew that have not answered."""
    refuses: bool = False
    """Votes that are refused are said. A candidate without a vote and one with a refused vote can do the same."""
    answers_terms: bool = False
    """A request of a lower term is answered with the own one."""
    loses: bool = False
    """A member may take its leader for dead, which it is or is not."""
    transfers: bool = False
    """A leader may hand over to a member that holds everything."""
    snapshots: bool = False
    """A member may take a snapshot of what it has applied, and drop the log before; who needs that is sent it."""
    damages: bool = False
    """A crash may also lose durable records at the end of the log."""
    powers: bool = False
    """A crash may also be a power loss in interval mode: it takes records that were appended since the last write of
    another kind, whatever was acknowledged. With one crash in all, since all lives of a member have one number."""
    wipes: bool = False
    """A crash may also lose the whole disk."""

    keeps_old: bool = False
    """Messages are kept that can have no effect any more: by the code as it is, not as a mutant has it."""
