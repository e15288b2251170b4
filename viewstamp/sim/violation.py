"""The error that a checker raises."""

from __future__ import annotations

__all__ = ["Violation"]


class Violation(AssertionError):  # noqa: N818 - the word of the field
    """A property does not hold. ``invariant`` is its name, ``detail`` the observation."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail
