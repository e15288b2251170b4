"""The probe of members before a record of a newer release is proposed: whether each runs a release that can read it.

A WELCOME has the highest kind of record that the member can read; releases before runs do not send it, and are probed
for groups in another way.

Two connections are opened to each member, by the HELLO of a client, which changes nothing. The answer to the first one
has the id of the member and its durability. The second one names a group that no cluster has, so its HELLO has another
version.

| the answer to the second HELLO | the member |
| --- | --- |
| REFUSED, because it does not host the group | can read records about groups |
| REFUSED, because of the version | runs an older release: it would stop at the first such record |
| anything else, or no answer | is unknown |

A member may be replaced by an older release after its probe. It then stops when it reads the record of the group, as
any member does that finds a record of a newer release, and goes on after its upgrade. So the probe decides nothing on
which the records of the group depend; it avoids that an operator stops members without a warning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from viewstamp.errors import PeerError, UnavailableError
from viewstamp.host.interfaces import Network
from viewstamp.ids import ClusterId, GroupId, NodeId, name_of
from viewstamp.node.peers.question import answer_to
from viewstamp.node.running_mark import INTERVAL
from viewstamp.wire.batch import Kind
from viewstamp.wire.handshake import Hello, Welcome

__all__ = ["Unfit", "find_unfit"]

_SECONDS = 1.5
"""Limit of a probe. Shorter than the silence after which a client asks again, so that it gets the names."""
_NO_GROUP = GroupId((1 << 63) - 1)
"""The id of no group, because no log has this index."""


class Unfit(NamedTuple):
    """The members because of which the record may not be proposed, each with the reason."""

    refusing: dict[NodeId, str]
    """They cannot take part until an operator changes them."""
    silent: dict[NodeId, str]
    """They did not answer in time, or another node answered."""


async def find_unfit(
    network: Network, cluster: ClusterId, members: Mapping[NodeId, str], kind: Kind = Kind.PLACE_GROUP
) -> Unfit:
    """Probe members at their addresses, all at once, within 1.5 s. Changes nothing; cancellable.

    ``kind`` is that of the record to propose: one about groups, or a newer one.
    """
    unfit = Unfit({}, {})
    probes = [_probe(network, cluster, member, address, kind, unfit) for member, address in members.items()]
    await asyncio.gather(*probes)
    return unfit


async def _probe(network: Network, cluster: ClusterId, member: NodeId, address: str, kind: Kind, unfit: Unfit) -> None:
    """Probe one member, and put it into ``unfit`` if it is not fit."""
    try:
        async with asyncio.timeout(_SECONDS):
            welcome, refusal = await asyncio.gather(
                answer_to(network, address, Hello(cluster=cluster)),
                answer_to(network, address, Hello(cluster=cluster, group=_NO_GROUP)),
            )
    except TimeoutError:
        unfit.silent[member] = f"no answer from {address} within {_SECONDS:g} s"
        return
    if isinstance(refusal, PeerError) and type(refusal) is PeerError:
        unfit.refusing[member] = f"runs a release that does not know groups ({refusal.message})"
    elif not isinstance(welcome, Welcome) or type(refusal) is not UnavailableError:
        failed = refusal if isinstance(welcome, Welcome) else welcome
        unfit.silent[member] = f"no answer from {address}: {failed}"
    elif name_of(welcome.node) != name_of(member):
        unfit.silent[member] = f"{welcome.node} answers at {address}"
    elif kind > Kind.CANCEL_GROUP and welcome.kinds < kind:
        unfit.refusing[member] = f"runs a release that cannot read records of kind {kind}"
    elif welcome.durability == INTERVAL:
        unfit.refusing[member] = "acknowledges before it syncs ([wal] durability)"
