"""The aimed swarms: mixes of faults under which one kind of mistake appears within a few seeds.

Each is aimed at a hazard, not at a mutant, so it also exposes mistakes that have not been thought of yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewstamp.sim.network import LinkOptions
from viewstamp.sim.swarm import DAMAGES, STORE_FAULTS, Swarm

__all__ = ["AIMS", "Aim"]


@dataclass(frozen=True)
class Aim:
    """A swarm, and a sentence that describes its aim; without a swarm, each seed draws its own."""

    name: str
    sentence: str
    swarm: Swarm | None


AIMS: dict[str, Aim] = {
    aim.name: aim
    for aim in (
        Aim("drawn", "Nothing: each seed draws its own swarm, as in `viewstamp sim run`.", None),
        Aim(
            "diverging tails",
            "Members that were alone with the newest records die in the middle of a call of a slow disk and come back.",
            Swarm(
                clients=1,
                callers=1,
                seconds=16.0,
                fault_seconds=0.3,
                down_seconds=0.6,
                strike_seconds=0.3,
                pause_seconds=0.03,
                faults={"isolate": 1, "crash-in-call": 1},
                links=LinkOptions(delay_mean=0.002),
                disk_mean=0.03,
                value_bytes_max=40,
            ),
        ),
        Aim(
            "fallen leaders",
            "Leaders fall soon after their election, with their first record on their own disk only; every second new"
            " leader commits the records of earlier terms and adds none: figure 8 of the Raft paper.",
            Swarm(
                clients=1,
                callers=1,
                seconds=30.0,
                fault_seconds=20.0,
                down_seconds=1.0,
                strike_seconds=0.08,
                pause_seconds=0.3,
                faults={"kill": 1},
                links=LinkOptions(delay_mean=0.03),
                sync_only_chance=0.6,
                value_bytes_max=40,
            ),
        ),
        Aim(
            "late appends",
            "A leader's messages arrive so late that another one leads by then, which appends no records itself.",
            Swarm(
                clients=1,
                callers=4,
                fault_seconds=20.0,
                down_seconds=1.0,
                strike_seconds=0.4,
                pause_seconds=0.02,
                faults={"slow": 1},
                links=LinkOptions(delay_mean=0.005),
                sync_only=2,
                value_bytes_max=40,
            ),
        ),
        Aim(
            "late messages",
            "Messages are doubled and come late, out of their order, while leaders are cut off one after the other.",
            Swarm(
                clients=1,
                callers=2,
                fault_seconds=0.25,
                down_seconds=0.3,
                pause_seconds=0.03,
                faults={"isolate": 3, "one-way": 2, "pause": 2, "kill": 1},
                links=LinkOptions(delay_mean=0.005, double=0.3, reorder=0.4, reorder_seconds=2.5),
                value_bytes_max=40,
            ),
        ),
        Aim(
            "short logs",
            "Members come back from a partition, or from a death in the middle of a call, and the records that they"
            " lack are in a snapshot only: the others take one after a kilobyte, and drop the log before it.",
            Swarm(
                clients=2,
                callers=0,
                actors=4,
                seconds=20.0,
                fault_seconds=0.15,
                down_seconds=0.7,
                strike_seconds=0.4,
                pause_seconds=0.02,
                faults={"isolate": 1, "crash-in-call": 2},
                links=LinkOptions(delay_mean=0.002),
                disk_mean=0.01,
                segment_bytes=4 * 1024,
                snapshot_bytes=1024,
                value_bytes_max=1000,
                timeout=0.7,
            ),
        ),
        Aim(
            "late answers",
            "A response takes so long that a snapshot covers its records before it arrives. Then the response is lost,"
            " and members start again from that snapshot.",
            Swarm(
                clients=2,
                callers=1,
                actors=3,
                fault_seconds=0.5,
                down_seconds=0.3,
                pause_seconds=0.02,
                faults={"kill": 1, "break": 1, "power-all": 1},
                links=LinkOptions(delay_mean=0.05),
                segment_bytes=4 * 1024,
                snapshot_bytes=512,
                retain_bytes=4 * 1024,
                value_bytes_max=300,
            ),
        ),
        Aim(
            "late commits",
            "Drivers of sinks are killed or left behind, while answers get lost and come late and leaders fall.",
            Swarm(
                clients=1,
                callers=2,
                topics=2,
                seconds=4.0,
                fault_seconds=0.35,
                down_seconds=0.2,
                pause_seconds=0.02,
                faults={"isolate": 1, "break": 3, "kill": 1},
                links=LinkOptions(delay_mean=0.005, break_connection=0.005),
                sinks=2,
                driver_seconds=0.4,
                value_bytes_max=100,
                timeout=1.0,
            ),
        ),
        Aim(
            "staged on short logs",
            "Batches of sinks are committed long after they were staged. Meanwhile topics are trimmed, snapshots are"
            " taken, and members die and start again from a snapshot.",
            Swarm(
                clients=2,
                callers=0,
                actors=2,
                topics=2,
                seconds=4.0,
                fault_seconds=0.5,
                down_seconds=0.3,
                pause_seconds=0.02,
                faults={"kill": 1, "crash-in-call": 1, "isolate": 1},
                links=LinkOptions(delay_mean=0.002),
                segment_bytes=4 * 1024,
                snapshot_bytes=1024,
                sinks=2,
                step_seconds=0.1,
                driver_seconds=3.0,
                trim_chance=1.0,
                value_bytes_max=300,
            ),
        ),
        Aim(
            "sleeping leaders",
            "Leaders are paused while others are elected, and then answer waiting clients. Clients connect, read and"
            " leave all the time.",
            Swarm(
                clients=3,
                callers=2,
                seconds=8.0,
                fault_seconds=20.0,
                down_seconds=0.8,
                strike_seconds=0.3,
                pause_seconds=0.02,
                read_seconds=0.02,
                visit_seconds=0.5,
                faults={"pause": 2, "isolate": 1},
                links=LinkOptions(delay_mean=0.002),
                value_bytes_max=40,
            ),
        ),
        Aim(
            "changing members",
            "Members are added, removed and replaced, and the leadership is handed over, while others are killed or cut"
            " off.",
            Swarm(
                clients=1,
                callers=2,
                seconds=12.0,
                fault_seconds=0.3,
                down_seconds=0.4,
                pause_seconds=0.03,
                faults={"members": 3, "transfer": 2, "kill": 1, "isolate": 2},
                links=LinkOptions(delay_mean=0.005),
                disk_mean=0.005,
                value_bytes_max=40,
            ),
        ),
        Aim(
            "rotten disks",
            "Bits flip, files and disks are lost, and a part of the group is cut off before the damage is repaired.",
            Swarm(
                clients=1,
                callers=2,
                seconds=12.0,
                fault_seconds=0.4,
                down_seconds=0.3,
                pause_seconds=0.03,
                faults={**dict.fromkeys(DAMAGES, 1.0), "kill": 1, "isolate": 2},
                links=LinkOptions(delay_mean=0.005),
                disk_mean=0.01,
                segment_bytes=8 * 1024,
                value_bytes_max=300,
            ),
        ),
        Aim(
            "failing stores",
            "An operator archives topics into a directory, and members delete them from their logs, while the store"
            " fails in every way, leaders die in its calls, and others are cut off and go on writing.",
            Swarm(
                clients=1,
                callers=2,
                topics=2,
                seconds=12.0,
                fault_seconds=0.8,
                down_seconds=0.4,
                strike_seconds=4.0,
                pause_seconds=0.05,
                faults={"kill": 1, "isolate": 1, "pause": 1, "clock": 1, "lost-disk": 0.3},
                segment_bytes=4 * 1024,
                snapshot_bytes=4 * 1024,
                value_bytes_max=1000,
                archives=True,
                archive_faults=(*STORE_FAULTS, "cut", "die", "die", "slow"),
            ),
        ),
    )
}
"""The aims by name."""
