"""How settings are checked: each check says what was found and what is expected."""

import dataclasses
from typing import Any

from gnmt.errors import ConfigError

INFINITY = float("inf")


def require(valid: bool, found: str, expected: str) -> None:
    """Raise a ConfigError of `found` and `expected` unless `valid`."""
    if not valid:
        raise ConfigError(f"{found}, expected {expected}")


def require_range(settings: object, names: str, low: float, high: float, *, open_end: bool = False) -> None:
    """Check that each named field lies in [low, high], or in [low, high) if `open_end`."""
    for name in names.split():
        value = getattr(settings, name)
        valid = low <= value < high if open_end or high == INFINITY else low <= value <= high
        bounds = f"at least {low:g}" if high == INFINITY else f"in [{low:g}, {high:g}{')' if open_end else ']'}"
        require(valid, f"{type(settings).__name__}.{name} is {value}", bounds)


def require_types(settings: Any) -> None:
    """Check each field against its default's type: settings of a model come from a file that a user was handed."""
    for field in dataclasses.fields(settings):
        value, kind = getattr(settings, field.name), type(field.default)
        if field.default is None:
            valid = value is None or all(type(item) is int for item in value)
        else:
            valid = type(value) is kind or (kind is float and type(value) is int)
        name = "a list of whole numbers" if field.default is None else kind.__name__
        require(valid, f"{type(settings).__name__}.{field.name} is {value!r}", name)


def require_choice(settings: object, name: str, choices: tuple[str, ...]) -> None:
    """Check that the named field is one of the choices."""
    value = getattr(settings, name)
    require_one_of(value, choices, f"{type(settings).__name__}.{name} is {value!r}")


def require_one_of(value: str, choices: tuple[str, ...], found: str) -> None:
    """Check that a value is one of the choices; `found` says what it is."""
    require(value in choices, found, f"one of {', '.join(choices)}")
