"""Numbers in words, which a person types to show that this number is meant."""

from __future__ import annotations

__all__ = ["number_words"]

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def number_words(number: int) -> str:
    """Return a number from 0 to 999 in words, for example ``two hundred fifty-six``."""
    if not 0 <= number <= 999:
        raise ValueError(f"{number} is not from 0 to 999")
    if number < len(_SMALL):
        return _SMALL[number]
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{_SMALL[hundreds]} hundred" + (f" {number_words(rest)}" if rest else "")
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
