"""Addresses as people write them: ``host:port``, ``[v6]:port``. Pure."""

from __future__ import annotations

from viewstamp.errors import ConfigError

__all__ = ["format_address", "parse_address"]


_SHOWN = 300


def parse_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port`` into host and port, 0 to 65535.

    Raises:
      ConfigError: it has another shape; fix the setting that it came from.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    well_formed = colon and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not well_formed or not host or not host.isprintable() or (":" in host and not bracketed):
        raise ConfigError(
            f"{address[:_SHOWN]!r} is no address",
            remedy="write host:port, with a port from 0 to 65535; write an IPv6 host in brackets, as in [::1]:7001",
        )
    return (host[1:-1] if bracketed else host), int(port)


def format_address(host: str, port: int) -> str:
    """Return ``host:port``; an IPv6 host is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
