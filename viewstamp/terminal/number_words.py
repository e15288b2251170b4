"""Numbers in words, which a person types to show that this number is meant."""

from __future__ import annotations

__all__ = ["number_words"]

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

_THOUSANDS = ("", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion")
_END = 1000 ** len(_THOUSANDS)


def number_words(number: int) -> str:
    """Return a number from 0 to 10^21 - 1 in words, for example ``one thousand two hundred fifty-six``."""
    if not 0 <= number < _END:
        raise ValueError(f"{number} is not from 0 to {_END - 1}")
    parts, rest = [], number
    for name in _THOUSANDS:
        rest, low = divmod(rest, 1000)
        if low:
            parts.append(_below_1000(low) + name)
    return " ".join(reversed(parts)) or _SMALL[0]


def _below_1000(number: int) -> str:
    if number < len(_SMALL):
        return _SMALL[number]
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{_SMALL[hundreds]} hundred" + (f" {_below_1000(rest)}" if rest else "")
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
