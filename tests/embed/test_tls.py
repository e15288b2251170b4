"""Embedded nodes and clients with TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import viewstamp
import viewstamp.trio
from tests.certificates import Authority, client, member
from viewstamp.config import create_cluster, load_settings, make_certificates, node_file
from viewstamp.errors import ConfigError, TlsError, UnavailableError

pytestmark = pytest.mark.slow


async def test_a_local_cluster_with_tls_serves_its_own_clients_only() -> None:
    async with viewstamp.local_cluster(nodes=3, tls=True) as cluster:
        shop = cluster.client()
        await shop.create_topic("orders")
        assert (await shop.append("orders", b"one")).position == 1
        for node in cluster.nodes.values():  # Each is a client too: of its own node without a socket, of others by TLS.
            await node.append("orders", b"more")
            assert (await anext(node.read("orders"))).value == b"one"
        addresses = ",".join(cluster.address(node) for node in cluster.ids)
        async with viewstamp.connect(addresses) as plain:
            with pytest.raises(TlsError, match="accepts only connections with TLS"):
                await plain.append("orders", b"never")


async def test_tls_clients_of_a_cluster_without_tls_get_an_error(tmp_path: Path) -> None:
    files = Authority(tmp_path).sign(client())
    async with viewstamp.local_cluster(nodes=1) as cluster:
        options = viewstamp.ClientOptions(timeout=1.0)
        async with viewstamp.connect(cluster.address("n1"), tls=files, options=options) as shop:
            with pytest.raises(UnavailableError, match="the TLS handshake; a node without"):
                await shop.append("orders", b"never")
        await cluster.client().create_topic("orders")


async def test_a_node_refuses_to_start_with_a_certificate_that_is_not_its_own(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1)
    make_certificates(str(tmp_path))
    settings = load_settings(node_file(str(tmp_path), "n1")).settings
    authority = Authority(tmp_path / "tls")
    for uri, message in (
        (member("n2", settings.cluster.id), "member/n2, but this is"),
        (member("n1", "other"), "other/member/n1, but this is"),
        (client("n1", settings.cluster.id), "client/n1, but this is"),
    ):
        authority.sign(uri, stem="n1")
        with pytest.raises(ConfigError, match=message):
            async with viewstamp.open_node(settings):
                pass
    authority.sign(member("n1", settings.cluster.id), begins=-9, ends=-1)
    with pytest.raises(ConfigError, match=r"has expired: it is valid from .* and the clock of this machine says"):
        async with viewstamp.open_node(settings):
            pass
    await asyncio.sleep(0)
