"""One way to state a rule about a parameter and to refuse a value that breaks it."""

__all__ = ["power_of_two", "within"]


def within(name: str, value: int, low: int, high: int, unit: str = "") -> None:
    """Refuse a value that is not an integer from `low` to `high`.

    Raises
    ------
    TypeError
        Not an integer (a bool is none).
    ValueError
        Out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not low <= value <= high:
        suffix = f" {unit}" if unit else ""
        raise ValueError(f"{name} must be from {low} to {high}{suffix}, not {value!r}")


def power_of_two(name: str, value: int, low: int, high: int, unit: str = "") -> None:
    """Refuse a value that is not a power of two from `low` to `high`."""
    within(name, value, low, high, unit)
    if value & (value - 1):
        raise ValueError(f"{name} must be a power of two, not {value!r}")
