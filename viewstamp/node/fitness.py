"""Whether all members of the cluster can take part in what a record of a newer release begins.

A member stops at the first record that it cannot read. So before a leader proposes the first record of such a kind, it
probes the members of group 0, which every node follows (``peers/probe.py``). If the members change during the probe,
they are probed again. A member that is added between the probe and the record stops at the record, and goes on after
its upgrade.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from viewstamp.consensus.membership import Membership
from viewstamp.errors import RequestError, UnavailableError
from viewstamp.host.interfaces import Network
from viewstamp.ids import NodeId, name_of
from viewstamp.node.group import Group
from viewstamp.node.peers.probe import Unfit, find_unfit
from viewstamp.wire.batch import Kind

__all__ = ["Needs", "check_durable", "unfit_members", "when_fit"]

_PROBES_MAX = 3
"""Times that the members are probed because they have changed meanwhile."""

PreparedT = TypeVar("PreparedT")

Needs: TypeAlias = tuple[PreparedT, Kind | None]
"""What was prepared, and the kind of record that all members have to read first; None = they do, or need not."""


async def when_fit(
    network: Network,
    home: Group,
    prepare: Callable[[Membership], Needs[PreparedT]],
    consequence: str,
    *,
    may_be_silent: bool = False,
) -> PreparedT:
    """Return what ``prepare`` makes of the members, when all of them read the kind of record that it needs.

    If the members change during the probe, it is made again for the new ones. Changes nothing; cancellable.

    Args:
      network: by which the members are probed.
      home: group 0 of this node.
      prepare: returns the result and the kind to probe for; None = no probe is needed.
      consequence: what was not done, for the text of an error.
      may_be_silent: members that do not answer count as fit.

    Raises:
      RequestError: a member runs an older release, or acknowledges before it syncs.
      UnavailableError: a member does not answer, or the members change all the time.
    """
    for _ in range(_PROBES_MAX):
        membership = home.membership
        prepared, kind = prepare(membership)
        if kind is None:
            return prepared
        check_durable(home, consequence)
        unfit = await unfit_members(network, home, membership, kind)
        if unfit.refusing:
            raise _refusing(unfit.refusing, consequence)
        if unfit.silent and not may_be_silent:
            raise UnavailableError(
                f"a member of the cluster does not answer, so its release is unknown; {consequence}:"
                f" {_listed(unfit.silent)}",
                remedy="start it, or remove it: `viewstamp members remove`; then try again",
            )
        if home.membership.addresses == membership.addresses:
            return prepared
    raise UnavailableError(
        f"the members of the cluster change at present; {consequence}",
        remedy="wait for the end of the change: `viewstamp members list`; then try again",
    )


async def unfit_members(network: Network, home: Group, membership: Membership, kind: Kind) -> Unfit:
    """Probe all members but this node. Changes nothing; cancellable."""
    options = home.options
    others = {node: address for node, address in membership.addresses.items() if name_of(node) != options.node}
    return await find_unfit(network, options.cluster, others, kind)


def check_durable(group: Group, consequence: str) -> None:
    """Raise RequestError if this node acknowledges before it syncs: it could lose the record."""
    if group.options.is_interval:
        raise _refusing({group.me: "acknowledges before it syncs ([wal] durability)"}, consequence)


def _refusing(members: dict[NodeId, str], consequence: str) -> RequestError:
    return RequestError(
        f"a member of the cluster cannot take part; {consequence}: {_listed(members)}",
        remedy='run this release on every member, with [wal] durability = "sync"; then try again',
    )


def _listed(members: dict[NodeId, str]) -> str:
    return "; ".join(f"{node}: {reason}" for node, reason in members.items())
