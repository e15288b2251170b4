"""The pauses between the attempts to archive a topic on request, after attempts that failed.

A client sends its request again and again until its timeout. Without pauses each copy would begin a job, and a job that
fails behind its PREPARE_RUN costs three records in every log. So the leader answers with the last error until a pause
is over, which grows from one failure to the next. ``archive_rounds.py`` has the pauses of topics with settings.

| event | effect |
| --- | --- |
| another client asks for the topic in the pause | the same error, at once |
| the node dies, or is deposed | the next leader begins without a pause |
| the store refuses the work, which is final for a request | no pause, because no client repeats it |
| the clock jumps | the pauses use the monotonic clock |
"""

from __future__ import annotations

from typing import Final, NamedTuple

from viewstamp.errors import UnavailableError
from viewstamp.host.interfaces import Clock

__all__ = ["ArchivePauses"]

_SECONDS: Final = 0.5
"""The pause after the first failure; twice as long after each further one ..."""
_SECONDS_MAX: Final = 10.0
"""... up to this."""


class _Failure(NamedTuple):
    number: int
    due: float
    error: UnavailableError


class ArchivePauses:
    """The failures of each topic since its last success. Names of topics that exist, so they are bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def check(self, topic: str) -> None:
        """Raise the last error of a topic as UnavailableError while its pause is not over."""
        failure = self._failures.get(topic)
        if failure is not None and self._clock.monotonic() < failure.due:
            raise UnavailableError(failure.error.message, remedy=failure.error.remedy)

    def failed(self, topic: str, error: UnavailableError) -> None:
        """Note that an attempt has failed. A node that does not lead, or has no majority, has failed at nothing."""
        if type(error) is UnavailableError:
            number = self._failures[topic].number + 1 if topic in self._failures else 1
            pause = min(_SECONDS * 2 ** min(number - 1, 60), _SECONDS_MAX)
            self._failures[topic] = _Failure(number, self._clock.monotonic() + pause, error)

    def succeeded(self, topic: str) -> None:
        """Note that a run of a topic was written, or that nothing was to be done."""
        self._failures.pop(topic, None)
