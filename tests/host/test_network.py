"""Addresses in their textual form."""

from __future__ import annotations

import pytest

from viewstamp.errors import ConfigError
from viewstamp.host.network import format_address, parse_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7001", ("127.0.0.1", 7001)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_is_split_into_host_and_port_and_back(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected
    assert format_address(*expected) == address


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":7001", "host:x", "host:-1", "host:65536", "::1:7001", "h:²"]
)
def test_anything_else_is_refused_with_the_expected_form(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(address)
    assert repr(address) in caught.value.message
    assert "host:port" in caught.value.remedy
