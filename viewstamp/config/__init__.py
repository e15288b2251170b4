"""Settings: plain values from a TOML file, the environment and flags.

Promises
  * Flags win over the environment, the environment over the file, the file over the defaults.
  * What is wrong is an error and never a guess: an unknown section or key (the nearest name is offered),
    a wrong type, a value out of range, values that contradict each other. The error is a ConfigError that
    names the file (or variable, or flag), the key, the value and what is allowed.
  * A listen address that other machines can reach is refused unless ``insecure_network = true``, because
    nothing is encrypted and nobody is authenticated.
  * Every value knows where it came from: ``viewstamp config show`` prints that. A value that follows from
    another one (``[wal] segment_bytes`` from ``bytes_max``) is shown as what it is, and from what it follows.

Assumes
  * Loading happens once, at start. Nothing is watched or read again.

The pieces
  ``model.py``   the frozen dataclasses with units, ranges and defaults: the one list of settings there is
  ``load.py``    file, environment and flags into those dataclasses
  ``create.py``  the files of a new local cluster, and of a node that joins one

Names in the environment are ``VIEWSTAMP_SECTION__KEY`` (two underscores): ``VIEWSTAMP_NODE__LISTEN``. A
variable of this prefix without two underscores is not a setting (``VIEWSTAMP_CLUSTER`` is read by the
command line). A table is written ``n1=127.0.0.1:7001,n2=127.0.0.1:7002`` there. ``[actors]`` is the one section
whose keys are the user's: ``inventory = "shop.stock:Inventory"``; in the environment only names in small letters.

Invariants
  * A ``NodeSettings`` that ``load_settings`` returned has passed ``NodeSettings.check``; the invariants
    stand there. Settings that a program builds by itself are to be checked by calling it.
  * ``data_dir`` is absolute and ``advertise`` is not empty once loaded.
  * Nothing here knows what a setting does: every part of the system has ``Options`` of its own, and
    ``embed`` builds them from these values. The classes of ``[actors]`` are imported there too, never here.

Deliberately lacking
  * Reloading while the node runs: a change of settings is a restart, one node after the other.
  * Membership: ``members`` and ``learners`` are hints for a log that holds no membership yet. Afterwards
    the log says who belongs, whatever the files say.
  * Secrets; they come with TLS and tokens.
"""

from viewstamp.config.create import create_cluster, create_node, free_addresses, node_file
from viewstamp.config.load import LoadedSettings, load_settings
from viewstamp.config.model import (
    ClusterSection,
    LimitsSection,
    LoggingSection,
    NodeSection,
    NodeSettings,
    SnapshotsSection,
    TimeoutsSection,
    WalSection,
)

__all__ = [
    "ClusterSection",
    "LimitsSection",
    "LoadedSettings",
    "LoggingSection",
    "NodeSection",
    "NodeSettings",
    "SnapshotsSection",
    "TimeoutsSection",
    "WalSection",
    "create_cluster",
    "create_node",
    "free_addresses",
    "load_settings",
    "node_file",
]
