"""From settings to a node: the only place that sees both."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from viewstamp.archive.location import open_store
from viewstamp.archive.run_process import RunProcess
from viewstamp.archive.run_store import RunObjects
from viewstamp.config.load import load_settings
from viewstamp.config.model import INTERVAL, NodeSettings
from viewstamp.consensus.state import RaftOptions
from viewstamp.embed.actor_classes import NO_ACTORS, Actors, import_actors
from viewstamp.errors import TlsError
from viewstamp.host.clock import RealClock, read_boot_id
from viewstamp.host.descriptors import descriptor_limit
from viewstamp.host.disk import RealDisk, disk_bytes
from viewstamp.host.interfaces import Buffer, Host
from viewstamp.host.logger import Logger, SafeLogger
from viewstamp.host.network import RealNetwork
from viewstamp.host.private import readable_by_others
from viewstamp.host.tls import Tls
from viewstamp.host.tls_network import TlsNetwork
from viewstamp.ids import CertificateName
from viewstamp.node.crowd import CrowdLimits
from viewstamp.node.node import Node
from viewstamp.node.options import NodeOptions
from viewstamp.node.repair.scrubber import ScrubOptions
from viewstamp.node.service import Limits
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.streams.machine import Streams
from viewstamp.wal.budget import WalOptions
from viewstamp.wire.answers import error_fields
from viewstamp.wire.frame import FrameKind, encode_frame

__all__ = ["compose_node", "node_host", "node_options", "prepare_process", "real_host", "resolve"]

_SWITCH_SECONDS = 0.0005
_STAGED_BYTES_MIN = 1024**3
"""The default quota of staged bytes on a small disk; it was the only default before."""


def prepare_process() -> None:
    """Let the writer thread and the event loop take turns quickly: the default of 5 ms would be a sync's latency."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))


def real_host() -> Host:
    """Return the clock, disk and network of the operating system, and a random generator that it seeds once.

    A ``SystemRandom`` would be too slow: each draw is a system call, which may take 40 us in a virtual machine, and a
    follower draws an election timeout for every append that it receives.
    """
    return Host(RealClock(), RealDisk(), RealNetwork(), random.Random(), boot_id=read_boot_id)


def node_host(settings: NodeSettings, log: Logger) -> Host:
    """Return the :func:`real_host` of a node, with TLS around its network if the settings have it.

    Blocks for the files of ``[tls]``. Called on the node's event loop. Logs if connections are not protected.

    Raises:
      ConfigError: a file of ``[tls]`` is wrong, or names another node than the settings.
    """
    host, files, logger = real_host(), settings.tls.files, SafeLogger.of(log)
    if files is None:
        if settings.node.insecure_network:
            logger.warning(
                "! INSECURE NETWORK: each process that reaches the port may read and write, and connections are not"
                " encrypted",
                listen=settings.node.listen,
                remedy="set [tls], and remove insecure_network: `viewstamp tls new --dir DIR`",
            )
        return host
    if mode := readable_by_others(files.key):
        logger.warning("! other users can read the private key", path=files.key, mode=f"{mode:o}")
    loop = asyncio.get_running_loop()

    def report(event: str, fields: Mapping[str, object]) -> None:
        write = logger.warning if event.startswith("!") else logger.info
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(lambda: write(event, **fields))

    tls = Tls(files, expected=CertificateName(settings.cluster.id, True, settings.node.id), report=report)
    network = TlsNetwork(host.network, tls, plain_refusal=_plain_refusal())
    return replace(host, network=network, tls=tls, plain_network=host.network)


def _plain_refusal() -> list[Buffer]:
    """Return the answer to an opener that does not speak TLS: a frame that every release can read."""
    error = TlsError(
        "this node accepts only connections with TLS, and this one has none",
        remedy="give the other side its certificate: [tls] of a node, `viewstamp --tls-certificate FILE` of a command,"
        " connect(tls=...) of a program",
    )
    return encode_frame(FrameKind.REFUSED, error_fields(error))


def resolve(settings: str | Path | NodeSettings, actors: Actors = NO_ACTORS) -> tuple[NodeSettings, Actors]:
    """Load a settings file, or take settings as they are; import the actors that they name and ``actors`` does not.

    Blocks. Raises ConfigError.
    """
    directory = ""
    if not isinstance(settings, NodeSettings):
        loaded = load_settings(settings)
        settings, directory = loaded.settings, loaded.directory
    named = {name: target for name, target in settings.actors.items() if name not in actors}
    return settings, {**import_actors(named, directory), **actors}


def node_options(settings: NodeSettings) -> NodeOptions:
    """Translate settings into the options of the node's parts."""
    timeouts = settings.timeouts
    return NodeOptions(
        node=settings.node.id,
        cluster=settings.cluster.id,
        data_dir=settings.node.data_dir,
        listen=settings.node.listen,
        advertise=settings.node.advertise,
        health=settings.node.health,
        members=settings.cluster.members,
        learners=settings.cluster.learners,
        leader_hint=settings.cluster.leader_hint,
        core=RaftOptions(
            election_timeout_ticks=max(2, timeouts.election_ms // timeouts.tick_ms),
            heartbeat_ticks=max(1, timeouts.heartbeat_ms // timeouts.tick_ms),
            wait_all_ticks=round(settings.wal.interval_wait_all_seconds * 1000 / timeouts.tick_ms),
            lease_us=timeouts.election_ms * 1000 if timeouts.leases else 0,
        ),
        wal=WalOptions(
            segment_bytes=settings.wal.segment_bytes,
            bytes_max=settings.wal.bytes_max,
            reserve_bytes=settings.wal.reserve_bytes,
            queue_bytes_max=settings.wal.queue_bytes_max,
            cached_bytes=settings.wal.cached_bytes,
            sync_seconds=settings.wal.sync_interval_ms / 1000 if settings.wal.durability == INTERVAL else 0.0,
        ),
        snapshots=SnapshotOptions(
            log_bytes=settings.snapshots.log_bytes,
            restart_seconds_max=settings.snapshots.restart_seconds_max,
            kept_max=settings.snapshots.kept_max,
        ),
        limits=Limits(
            record_bytes_max=settings.limits.record_bytes_max,
            batch_bytes_max=settings.limits.batch_bytes_max,
            frame_bytes_max=settings.limits.frame_bytes_max,
            in_flight_bytes_max=settings.limits.in_flight_bytes_max,
            staged_keep_bytes=settings.wal.bytes_max // 4,
            crowd=CrowdLimits.within(
                descriptor_limit(),
                connections_max=settings.limits.connections_max,
                buffered_bytes_max=settings.limits.buffered_bytes_max,
            ),
        ),
        archive_cache_bytes=settings.archive.cache_bytes,
        scrub=ScrubOptions(bytes_per_second=settings.limits.scrub_bytes_per_second),
        tick_seconds=timeouts.tick_ms / 1000,
        clock_bound_seconds=timeouts.clock_bound_s,
        request_seconds=timeouts.request_s,
        insecure_network=settings.node.insecure_network,
        stores_members=True,
        process=os.getpid(),
    )


def compose_node(settings: NodeSettings, host: Host, log: Logger, actors: Actors = NO_ACTORS) -> Node:
    """Build a node that runs ``actors``, not started, on the running event loop. Imports nothing by itself."""
    quota, staged_bytes_max = _staging_quota(settings)

    def machine() -> Streams:
        return Streams(
            classes=actors,
            staged_bytes_max=staged_bytes_max,
            staged_quota=quota,
            session_seconds=settings.limits.session_seconds,
            call_result_bytes_max=settings.limits.result_bytes_max,
        )

    runs = _runs(settings, log) if settings.archive.where else None
    return Node(
        node_options(settings),
        host,
        machine(),
        log,
        machine_of=lambda _: machine(),
        run_store=None if runs is None else RunProcess(runs),
        run_source=runs,
    )


def _runs(settings: NodeSettings, log: Logger) -> RunObjects:
    """Return the store of archived records, and begin to look whether it can be used; the node does not wait for it."""
    loop, logger = asyncio.get_running_loop(), SafeLogger.of(log)

    def report(trouble: str, remedy: str) -> None:
        if trouble:
            logger.warning("! archive cannot be used", error=trouble, remedy=remedy)
        else:
            logger.info("= archive can be used again")

    def on_change(trouble: str, remedy: str) -> None:
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(report, trouble, remedy)

    store = RunObjects(open_store(settings.archive.where, on_change), settings.cluster.id)
    store.status()
    return store


def _staging_quota(settings: NodeSettings) -> tuple[str, int]:
    """Return what decides how much may be staged, for error messages, and the quota in bytes.

    Staged blocks keep the log from being deleted. The rest is for commits and snapshots, which free it.
    """
    quota, log_bytes_max = settings.limits.staged_bytes_max, settings.wal.bytes_max
    if log_bytes_max and not 0 < quota <= log_bytes_max // 8:
        return "[wal] bytes_max, an eighth of which may be staged", log_bytes_max // 8
    if quota:
        return "[limits] staged_bytes_max", quota
    share = disk_bytes(settings.node.data_dir) // 8
    return "[limits] staged_bytes_max, by default an eighth of the disk", max(_STAGED_BYTES_MIN, share)
