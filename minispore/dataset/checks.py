"""Checks of arguments that several methods share. Each message: what was asked, what came, what to do."""
import operator
from collections.abc import Sequence


def integer(name: str, value, least: int, remedy: str) -> int:
    """`value` as an int of at least `least`; TypeError or ValueError otherwise (a bool is no number here)."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__}); {remedy}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}; {remedy}")
    return number


def flag(name: str, value) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")
    return value


def names(what: str, value, known: Sequence[str] | None = None) -> tuple[str, ...]:
    """Column names from one name or a list of them, all different and, if `known` is given, among these."""
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else None
    if found is None or not all(isinstance(name, str) and name for name in found):
        raise TypeError(f"{what} must be a column name or a list of names, got {value!r}")
    if not found:
        raise ValueError(f"{what} is an empty list; name at least one column")
    if len(set(found)) < len(found):
        raise ValueError(f"{what} names a column twice: {list(found)}; each name may stand there once")
    unknown = [name for name in found if known is not None and name not in known]
    if unknown:
        raise ValueError(f"{what} asks for {unknown}, but the columns are {list(known)}; use these names")
    return found
