"""``connect``: a client of a cluster that runs elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.host.tls import TlsFiles
from viewstamp.host.tls_network import client_network

__all__ = ["connect"]


def connect(
    addresses: str,
    *,
    cluster_id: str = "",
    token: str = "",
    options: ClientOptions | None = None,
    tls: TlsFiles | None = None,
) -> Client:
    """Return a client of a running cluster. Use it with ``async with``; no connection is opened before the first call.

    Example::

        async with viewstamp.connect("127.0.0.1:7001,127.0.0.1:7002") as client:
            await client.append("orders", b"one")

    Args:
      addresses: ``host:port`` of one or more nodes, separated by commas. The nodes name the other members.
      cluster_id: the only cluster that the client talks to; "" = any cluster.
      token: the text that ``viewstamp token create`` printed; "" = that of ``options``.
      options: limits of batches, timeouts and retries.
      tls: the client's certificate, for a cluster with TLS. The client talks only to members of the cluster that the
        certificate names. None = without TLS.

    Raises:
      ConfigError: an address does not have the form ``host:port``, or a file of ``tls`` is wrong.
      RequestError: ``token`` is no token.
    """
    options = options if options is not None else ClientOptions()
    return Client(
        addresses.split(","),
        network=client_network(tls),
        entropy=random.SystemRandom(),
        cluster_id=cluster_id,
        options=replace(options, token=token) if token else options,
    )
