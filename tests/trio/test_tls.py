"""Clients and nodes of a trio program with TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import viewstamp
import viewstamp.trio
from tests.certificates import Authority, client
from tests.in_thread import in_thread
from viewstamp.config import create_cluster, load_settings, make_certificates, node_file
from viewstamp.errors import TlsError
from viewstamp.host.tls import TlsFiles

pytestmark = pytest.mark.slow


def test_trio_clients_use_tls(tmp_path: Path) -> None:
    stranger = Authority(tmp_path).sign(client("alice", "other"))

    async def work(addresses: str, files: TlsFiles) -> None:
        async with (
            viewstamp.trio.connect(addresses, tls=files) as one,
            viewstamp.trio.connect(addresses, tls=files) as two,
        ):
            await one.create_topic("orders")
            await one.append("orders", b"x" * 300_000)
            assert [record.value async for record in two.read("orders")] == [b"x" * 300_000]
        for wrong, message in ((None, "accepts only connections with TLS"), (stranger, "was refused: ")):
            async with viewstamp.trio.connect(addresses, tls=wrong) as other:
                with pytest.raises(TlsError, match=message):
                    await other.append("orders", b"never")
        async with viewstamp.trio.connect(addresses, tls=files) as other:
            with trio.move_on_after(0):
                await other.append("orders", b"cancelled in the handshake")
            await other.append("orders", b"last")

    with in_thread(lambda: viewstamp.local_cluster(nodes=3, tls=True)) as cluster:
        held = cluster.held
        trio.run(work, ",".join(held.address(node) for node in held.ids), held.tls)


def test_a_trio_program_hosts_a_node_with_tls(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1)
    files = make_certificates(str(tmp_path), clients=["alice"])[-1].tls.files
    address = load_settings(node_file(str(tmp_path), "n1")).settings.node.listen

    async def work() -> None:
        async with viewstamp.trio.open_node(node_file(str(tmp_path), "n1")) as node:
            await node.create_topic("orders")
            async with viewstamp.trio.connect(address, tls=files) as shop:
                await shop.append("orders", b"one")
            assert [record.value async for record in node.read("orders")] == [b"one"]

    trio.run(work)
