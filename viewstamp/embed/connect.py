"""``connect``: a client of a cluster that runs elsewhere."""

from __future__ import annotations

import random

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.host.network import RealNetwork

__all__ = ["connect"]


def connect(addresses: str, *, cluster_id: str = "", options: ClientOptions | None = None) -> Client:
    """Return a client of a running cluster. Use it with ``async with``; nothing is sent before the first call.

    Example::

        async with viewstamp.connect("127.0.0.1:7001,127.0.0.1:7002") as client:
            await client.append("orders", b"one")

    Args:
      addresses: ``host:port`` of one or more nodes, separated by commas. The client finds the other nodes by itself.
      cluster_id: the client refuses to talk to any other cluster; "" = any cluster.
      options: limits of batches, time-outs and retries.

    Raises:
      ConfigError: an address does not look like ``host:port``.
    """
    return Client(
        addresses.split(","),
        network=RealNetwork(),
        entropy=random.Random(),
        cluster_id=cluster_id,
        options=options if options is not None else ClientOptions(),
    )
