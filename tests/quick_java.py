"""Options for a JVM that lives for seconds, as those of the tests with Spark do."""

from __future__ import annotations

__all__ = ["QUICK_JAVA"]

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For ``JDK_JAVA_OPTIONS``: compile only as much as makes the start quick, and collect garbage in one thread.

For short jobs that is three times as fast. Verifying the classes of Spark would take 2 of the remaining 15 s of
processor time of a session.
"""
