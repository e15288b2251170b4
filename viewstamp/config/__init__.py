"""Settings: plain values from a TOML file, the environment and flags.

Promises
  * Flags override the environment, the environment overrides the file, the file overrides the defaults.
  * Every mistake is an error: an unknown section or key (with the nearest name), a wrong type, a value out of range,
    values that contradict each other. The error is a ConfigError with the file (or variable, or flag), the key, the
    value and the allowed values. Nothing is guessed.
  * A listen address that other machines can reach is refused without ``[tls]``, because connections would be neither
    encrypted nor authenticated. The last resort is ``insecure_network = true``.
  * The origin of every value is known: ``viewstamp config show`` prints it. A value that follows from another one (for
    example ``[wal] segment_bytes`` from ``bytes_max``) is shown with that origin.

Assumptions
  * Settings are loaded once, at start. Nothing is watched or read again.

The pieces
  ``model.py``   the frozen dataclasses with units, ranges and defaults: the only list of settings
  ``load.py``    file, environment and flags into those dataclasses
  ``create.py``  the files of a new local cluster, and of a node that joins one
  ``machines.py``  the same for nodes on several machines, with a comment on each setting that an operator decides
  ``certificates.py``  an authority and certificates for both
  ``rewrite.py``  another cluster in an existing file

Sizes and durations are numbers in the unit of the key (``heartbeat_ms = 50``), or text with a unit (``"50ms"``,
``bytes_max = "20GiB"``); ``viewstamp.quantities`` has the units.

Names in the environment are ``VIEWSTAMP_SECTION__KEY`` (two underscores), for example ``VIEWSTAMP_NODE__LISTEN``. A
variable with this prefix and without two underscores is not a setting (the command line reads ``VIEWSTAMP_CLUSTER``).
A table in a variable has the form ``n1=127.0.0.1:7001,n2=127.0.0.1:7002``. ``[actors]`` is the only section with the
user's own keys: ``inventory = "shop.stock:Inventory"``; in the environment they must be in small letters.

Invariants
  * ``NodeSettings`` from ``load_settings`` have passed ``NodeSettings.check``, which lists the invariants. A program
    that builds settings by itself must call it.
  * ``data_dir``, the files of ``[tls]`` and the directory of ``[archive]`` are absolute, and ``advertise`` is not empty
    once loaded.
  * This package does not know the effect of a setting: every part of the system has ``Options`` of its own, and
    ``embed`` builds them from these values. The classes of ``[actors]`` are imported there too, never here.

Deliberate omissions
  * Reloading while the node runs: to change settings, restart one node after the other.
  * Membership: ``members`` and ``learners`` are only used for a log that holds no membership yet. Afterwards the log
    decides, also if the files contain other members.
  * Secrets: settings name the file of a private key. The files of ``[tls]`` are read by ``viewstamp.host.tls``, which
    also notices that they were replaced.
"""

from viewstamp.config.certificates import make_certificates
from viewstamp.config.create import create_cluster, create_node, free_addresses, node_file, write_file
from viewstamp.config.load import LoadedSettings, load_settings
from viewstamp.config.machines import create_machine_files, create_machine_like
from viewstamp.config.model import (
    ClusterSection,
    LimitsSection,
    LoggingSection,
    NodeSection,
    NodeSettings,
    SnapshotsSection,
    TimeoutsSection,
    TlsSection,
    WalSection,
)
from viewstamp.config.rewrite import with_cluster

__all__ = [
    "ClusterSection",
    "LimitsSection",
    "LoadedSettings",
    "LoggingSection",
    "NodeSection",
    "NodeSettings",
    "SnapshotsSection",
    "TimeoutsSection",
    "TlsSection",
    "WalSection",
    "create_cluster",
    "create_machine_files",
    "create_machine_like",
    "create_node",
    "free_addresses",
    "load_settings",
    "make_certificates",
    "node_file",
    "with_cluster",
    "write_file",
]
