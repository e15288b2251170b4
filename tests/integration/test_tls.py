"""A cluster of processes with TLS works, refuses wrong certificates, and uses renewed ones."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.certificates import Authority, member
from tests.processes import Processes, eventually, is_connected, is_level, leader_of, running, statuses
from viewstamp.config import make_certificates
from viewstamp.config.certificates import drop_old_authority, make_next_authority
from viewstamp.embed.connect import connect
from viewstamp.errors import ConfigError, TlsError
from viewstamp.host.tls import TlsFiles

pytestmark = pytest.mark.slow


def certificate(processes: Processes, name: str = "mallory") -> TlsFiles:
    """Return the certificate of a client."""
    return make_certificates(processes.cluster.directory, clients=[name])[-1].tls.files


async def test_a_cluster_with_tls_serves_and_outlives_a_leader(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        for number in range(50):
            await client.append("orders", b"%d" % number)
        leader = await eventually(lambda: leader_of(client))
        await processes.kill(leader)
        await client.append("orders", b"50")
        await processes.run(leader)
        assert [record.value async for record in client.read("orders")] == [b"%d" % number for number in range(51)]
        await eventually(lambda: is_level(client))
        await eventually(lambda: is_connected(client))
        for status in await eventually(lambda: statuses(client)):
            assert status["tls"]["name"] == f"viewstamp://{processes.cluster.id}/member/{status['id']}"
        files = certificate(processes, "alice")
        addresses = ",".join(node.address for node in processes.cluster.nodes.values())
        async with connect(addresses, tls=files) as other:
            assert (await other.append("orders", b"51")).position == 52
        async with connect(addresses) as plain:
            with pytest.raises(TlsError, match="accepts only connections with TLS"):
                await plain.append("orders", b"never")
        stranger = Authority(tmp_path / "stranger").sign(member("n1", processes.cluster.id))
        async with connect(addresses, tls=stranger) as other:
            with pytest.raises(TlsError, match="was refused: "):
                await other.append("orders", b"never")
        elsewhere = Authority(tmp_path / "stranger").sign(member("n1", "elsewhere"))
        elsewhere = TlsFiles(authority=files.authority, certificate=elsewhere.certificate, key=elsewhere.key)
        async with connect(addresses, tls=files) as other:
            assert (await other.describe_topic("orders")).last_position == 52


async def test_processes_use_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        await client.create_topic("orders")
        before = {status["id"]: status["tls"]["ends_us"] for status in await eventually(lambda: statuses(client))}
        pids = {name: processes.node(name).pid() for name in processes.names}
        make_certificates(processes.cluster.directory, days=99, renew=True)

        async def are_renewed() -> bool:
            async with processes.connect() as other:
                await other.append("orders", b"one")
                nodes = await statuses(other)
                return bool(nodes) and all(node["tls"]["ends_us"] < before[node["id"]] for node in nodes)

        await eventually(are_renewed)
        key = processes.node("n1").settings.tls.key
        shutil.copy(key, tmp_path / "kept")
        shutil.copy(processes.node("n1").log_file, key)

        async def is_reported() -> bool:
            return any(status["tls"]["trouble"] for status in await statuses(client))

        await eventually(is_reported)
        shutil.copy(tmp_path / "kept", key)
        await eventually(are_renewed)
        assert {name: processes.node(name).pid() for name in processes.names} == pids


async def test_an_authority_is_replaced_while_the_cluster_works_and_a_stolen_certificate_is_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, tls=True) as processes, processes.connect() as client:
        directory = processes.cluster.directory
        await client.create_topic("orders")
        files = certificate(processes)
        stolen = TlsFiles(
            authority=str(tmp_path / "trusted.pem"),
            certificate=str(shutil.copy(files.certificate, tmp_path / "stolen.pem")),
            key=str(shutil.copy(files.key, tmp_path / "stolen.key")),
        )
        shutil.copy(files.authority, stolen.authority)
        addresses = ",".join(processes.node(name).address for name in processes.names)

        async def is_accepted(files: TlsFiles) -> bool:
            """Return whether every node accepts a new connection with this certificate."""
            async with connect(addresses, tls=files) as other:
                return all(status["reachable"] for status in await other.status())

        async def append() -> None:
            async with processes.connect() as other:
                await other.append("orders", b"one", timeout=10.0)

        assert await is_accepted(stolen)
        make_next_authority(directory)
        shutil.copy(files.authority, stolen.authority)  # The thief trusts both, so only its certificate decides.
        await append()
        with pytest.raises(ConfigError, match="has the next authority already"):
            make_next_authority(directory)
        with pytest.raises(ConfigError, match="has signed the certificates of mallory, n1, n2, n3"):
            drop_old_authority(directory)
        await eventually(lambda: is_accepted(stolen))
        make_certificates(directory, clients=["alice"], renew=True)
        with pytest.raises(ConfigError, match="has signed the certificates of mallory; nothing"):
            drop_old_authority(directory)
        alice = make_certificates(directory, clients=["alice"])[-1]
        assert not alice.is_new
        await eventually(lambda: is_accepted(alice.tls.files))
        for name in (files.certificate, files.key):
            await asyncio.to_thread(Path(name).unlink)
        drop_old_authority(directory)
        await append()

        async def is_refused() -> bool:
            async with connect(addresses, tls=stolen) as thief:
                return not any(status["reachable"] for status in await thief.status())

        await eventually(is_refused)
        assert await is_accepted(alice.tls.files)
        await processes.stop("n3")
        await processes.run("n3")  # Its peers accept its new certificate.
        await client.append("orders", b"one")
