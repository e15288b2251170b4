"""``connect``: a client of a cluster that runs elsewhere."""

from __future__ import annotations

import random

from viewstamp.client.aio import Client
from viewstamp.client.options import Options
from viewstamp.host.network import RealNetwork

__all__ = ["connect"]


def connect(addresses: str, *, cluster_id: str = "", options: Options | None = None) -> Client:
    """Return a client of the cluster whose nodes stand in ``addresses``; use it by ``async with``.

    Args:
      addresses: ``host:port`` of one or more nodes, separated by commas; the others are found from there.
      cluster_id: refuse to talk to any other cluster; "" = whichever answers.
      options: how to batch, wait and retry.

    Raises:
      ConfigError: an address has another shape.
    """
    return Client(
        addresses.split(","),
        network=RealNetwork(),
        entropy=random.Random(),
        cluster_id=cluster_id,
        options=options if options is not None else Options(),
    )
