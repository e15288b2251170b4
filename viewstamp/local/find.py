"""Finds the cluster that a command means: from its options, else the environment, else ./viewstamp-data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from viewstamp.errors import ConfigError
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, cluster_flag

if TYPE_CHECKING:
    from viewstamp.host.tls import TlsFiles

__all__ = ["find_cluster", "is_local", "use_files"]

VARIABLE: Final = "VIEWSTAMP_CLUSTER"
AUTHORITY: Final = "VIEWSTAMP_TLS_AUTHORITY"
CERTIFICATE: Final = "VIEWSTAMP_TLS_CERTIFICATE"
KEY: Final = "VIEWSTAMP_TLS_KEY"


def use_files(authority: str, certificate: str, key: str) -> None:
    """Use these files of TLS for the clusters that are not local, by the environment of this process.

    Raises:
      ConfigError: some are given, and others are missing.
    """
    given = {AUTHORITY: authority, CERTIFICATE: certificate, KEY: key}
    if any(given.values()):
        missing = [name for name, file in given.items() if not file]
        if missing:
            raise ConfigError(
                f"of the three files of TLS these are missing: {', '.join(missing)}",
                remedy="give all three options --tls-authority, --tls-certificate and --tls-key, or the variables",
            )
        os.environ.update(given)


def _given_files() -> TlsFiles | None:
    from viewstamp.host.tls import TlsFiles

    files = [os.environ.get(name, "") for name in (AUTHORITY, CERTIFICATE, KEY)]
    if not all(files):
        return None
    return TlsFiles(authority=files[0], certificate=files[1], key=files[2])


def find_cluster(directory: Path | None, cluster: str | None) -> ClusterTarget:
    """Return the cluster of ``--dir`` or ``--cluster``, else of VIEWSTAMP_CLUSTER, else the one in ./viewstamp-data.

    Raises:
      ConfigError: both options are given, or there is no cluster.
    """
    if directory is not None and cluster is not None:
        raise ConfigError("--dir and --cluster are both given", remedy="give one of them")
    if directory is None and cluster is None:
        cluster = os.environ.get(VARIABLE) or None
    if cluster is not None:
        return ClusterTarget(_split(cluster), where=cluster_flag(directory, cluster), tls=_given_files())
    from viewstamp.local.cluster import LocalCluster

    return LocalCluster.open(directory or DEFAULT_DIRECTORY).target


def is_local(directory: Path | None, cluster: str | None) -> bool:
    """Return whether :func:`find_cluster` returns a local cluster."""
    return directory is not None or (cluster is None and not os.environ.get(VARIABLE))


def _split(cluster: str) -> list[str]:
    from viewstamp.host.network import parse_address

    addresses = [part.strip() for part in cluster.split(",") if part.strip()]
    if not addresses:
        raise ConfigError(
            f"{cluster!r} names no node", remedy="write HOST:PORT,HOST:PORT,... in --cluster or VIEWSTAMP_CLUSTER"
        )
    for address in addresses:
        parse_address(address)
    return addresses
