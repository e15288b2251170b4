"""Bytes that survive: the group-commit log, its recovery, and the control file."""

from viewstamp.wal.control_file import ControlFile, ControlState
from viewstamp.wal.recovery import Recovery
from viewstamp.wal.wal import Options, Reservation, Wal

__all__ = ["ControlFile", "ControlState", "Options", "Recovery", "Reservation", "Wal"]
