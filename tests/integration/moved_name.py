"""A cluster whose members are names, one of which gets another address: ``python -m tests.integration.moved_name DIR``.

The caller has put DIR/hosts in the place of /etc/hosts, in a mount namespace of its own; see ``test_names.py``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import viewstamp
from tests.processes import eventually
from viewstamp.config import create_machine_files, free_addresses

NAMES = {"n1": "db1.test", "n2": "db2.test", "n3": "db3.test"}


async def main(directory: Path) -> None:
    """Append, move n2 to another address while it is down, append again; n2 has to receive everything."""
    port = free_addresses(1)[0].rpartition(":")[2]
    addresses = {"n1": "127.0.0.2", "n2": "127.0.0.3", "n3": "127.0.0.4"}
    hosts = directory / "hosts"
    members = {node: f"{name}:{port}" for node, name in NAMES.items()}
    files = create_machine_files(str(directory), members, insecure_network=True)
    running: dict[str, subprocess.Popen[bytes]] = {}

    def resolve() -> None:
        hosts.write_text("".join(f"{addresses[node]} {name}\n" for node, name in NAMES.items()), encoding="ascii")

    def start(node: str) -> None:
        command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", files[node]]  # type: ignore[index]
        environment = {**os.environ, "VIEWSTAMP_NODE__LISTEN": f"{addresses[node]}:{port}"}
        running[node] = subprocess.Popen(command, env=environment)

    resolve()
    try:
        for node in NAMES:
            start(node)
        async with viewstamp.connect(",".join(members.values())) as client:
            await client.create_topic("orders")
            await client.append("orders", b"before")
            await eventually(partial(is_level, client))
            running["n2"].terminate()
            running["n2"].wait()
            await client.append("orders", b"while it moves")
            addresses["n2"] = "127.0.0.5"
            resolve()
            start("n2")
            await eventually(partial(is_level, client))
            # Its vote counts at the new address: without n3, it is one of two.
            running["n3"].kill()
            running["n3"].wait()
            await client.append("orders", b"after")
            found = [record.value async for record in client.read("orders")]
            assert found == [b"before", b"while it moves", b"after"], found
    finally:
        for process in running.values():
            process.kill()
            process.wait()


async def is_level(client: viewstamp.Client) -> bool:
    """Return whether all members answer, and have applied the same records."""
    ends = [node.get("applied_index") for node in await client.status()]
    return len(ends) == len(NAMES) and None not in ends and len(set(ends)) == 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
