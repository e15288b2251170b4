"""The doctor's findings about certificates and unprotected connections. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from viewstamp.doctor.report import Finding, Report, node_name
from viewstamp.doctor.status import is_stranger

__all__ = ["SOON_DAYS", "security_trouble"]

SOON_DAYS: Final = 30
"""Days before the end of a certificate from which the doctor warns, so that a person has time to renew it."""
_DAY_US: Final = 86_400_000_000


def security_trouble(report: Report) -> Iterator[Finding]:
    """Yield the problems with the connections of each node that answers, by its own clock."""
    renew = (
        "write a new certificate and key into its files, for example with `viewstamp tls new --renew`; the node uses"
        " them without a restart"
    )
    if any(is_stranger(node) for node in report.up):
        yield Finding(
            code="no_token",
            node="",
            sentence="access control is on, and this command has no token with a right: the nodes tell who leads, and"
            " none of their problems",
            remedy="give it a token by --token-file or VIEWSTAMP_TOKEN, or --dir on the machine of a member",
        )
    for node in report.up:
        name, tls = node_name(node), node.get("tls") or {}
        if node.get("insecure_network"):
            yield Finding(
                code="insecure_network",
                node=name,
                sentence=f"{name} runs with insecure_network: connections are not encrypted, and each process that"
                " reaches its port may read and write",
                remedy="make certificates with `viewstamp tls new`, set [tls] on every node, and remove"
                " insecure_network",
            )
        if not tls:
            continue
        days = (tls["ends_us"] - node["clock_us"]) / _DAY_US
        if days <= 0:
            yield Finding(
                code="certificate",
                node=name,
                sentence=f"the certificate of {name} has expired: open connections go on, and new ones are refused",
                remedy=renew,
            )
        elif days <= SOON_DAYS:
            yield Finding(
                code="certificate_ends",
                node=name,
                sentence=f"the certificate of {name} ends in {days:.0f} days ({tls['certificate']})",
                remedy=renew,
            )
        if tls["trouble"]:
            yield Finding(
                code="certificate_files",
                node=name,
                sentence=f"{name} does not use its new certificate, and goes on with the earlier one: {tls['trouble']}",
                remedy="correct the files of [tls]; the node looks at them again by itself",
            )
