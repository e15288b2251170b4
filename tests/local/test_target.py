"""The client of a command: a warning if its token can be read on the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import Authority, client
from viewstamp.client.options import ClientOptions
from viewstamp.local.target import ClusterTarget

TOKEN = ClientOptions(token=f"vst_{'0a' * 6}_{'1b' * 32}")


@pytest.mark.parametrize(
    ("addresses", "options", "warned"),
    [
        (["192.0.2.1:7001"], TOKEN, True),
        (["127.0.0.1:7001", "192.0.2.1:7001"], TOKEN, True),
        (["127.0.0.1:7001", "localhost:7002", "[::1]:7003"], TOKEN, False),
        (["192.0.2.1:7001"], ClientOptions(), False),
    ],
    ids=["plain", "one-plain", "loopback", "no-token"],
)
async def test_a_token_that_leaves_the_machine_without_tls_is_warned_of(
    addresses: list[str], options: ClientOptions, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    ClusterTarget(addresses).connect(options=options)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("the token is sent without TLS" in captured.err) == warned
    assert "vst_" not in captured.err


async def test_a_token_over_tls_needs_no_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:

    files = Authority(tmp_path).sign(client())
    ClusterTarget(["192.0.2.1:7001"], tls=files).connect(options=TOKEN)
    assert capsys.readouterr().err == ""
