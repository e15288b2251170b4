"""The certificates that ``viewstamp tls new`` makes, and its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewstamp.config import create_cluster, make_certificates
from viewstamp.errors import ConfigError


def test_certificates_are_made_once_and_renewed_on_demand(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 3)
    first = make_certificates(str(tmp_path), clients=["alice"])
    assert [str(each.tls.name).split("/", 3)[3] for each in first] == [
        "member/n1",
        "member/n2",
        "member/n3",
        "client/alice",
    ]
    assert all(each.is_new for each in first)
    for path in (tmp_path / "tls").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    again = make_certificates(str(tmp_path), clients=["alice"])
    assert not any(each.is_new for each in again)
    assert [each.tls.validity for each in again] == [each.tls.validity for each in first]
    (tmp_path / "tls" / "n2.key").unlink()
    assert [each.is_new for each in make_certificates(str(tmp_path))] == [False, True, False]
    renewed = make_certificates(str(tmp_path), days=7, renew=True)
    assert all(each.is_new for each in renewed)
    assert renewed[0].tls.validity.ends < first[0].tls.validity.ends
    text = (tmp_path / "n1.toml").read_text()
    assert text.count("[tls]") == 1
    (tmp_path / "tls" / "ca.key").unlink()
    with pytest.raises(ConfigError, match="is missing, and without it"):
        make_certificates(str(tmp_path), renew=True)


@pytest.mark.parametrize("name", ["n1", "ca", "a/b", "", "..", "x" * 65])
def test_a_client_with_a_name_that_is_not_allowed_gets_no_certificate(tmp_path: Path, name: str) -> None:
    create_cluster(str(tmp_path), 1)
    with pytest.raises(ConfigError, match="cannot name a client"):
        make_certificates(str(tmp_path), clients=[name])
    assert not (tmp_path / "tls").exists()


def test_an_authority_of_ones_own_is_not_replaced(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1)
    file = tmp_path / "n1.toml"
    file.write_text(file.read_text() + '\n[tls]\nauthority = "/etc/ca.pem"\ncertificate = "a"\nkey = "b"\n')
    with pytest.raises(ConfigError, match="has another authority"):
        make_certificates(str(tmp_path))
