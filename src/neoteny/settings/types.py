"""Values against annotations: whether what a person wrote is what a setting takes."""

from __future__ import annotations

import dataclasses
import math
import reprlib
import types
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SAID: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a finite number", "finite numbers"),
    str: ("a string", "strings"),
    dict: ("a table", "tables"),
}
"""What each kind of value is called: one of them, and many."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_SHORT.maxlevel = 3


def field_types(kind: type) -> dict[str, Any]:
    """Return the annotation of each field of a dataclass, by name; class variables are no fields."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def fitted(value: Any, kind: Any) -> Any:
    """`value` as the annotation `kind` asks for it, or a TypeError that says what it must be and what it is.

    A number without a fraction is a whole number, so that 1e6 may be written for 1_000_000; True and False are no
    numbers; NaN and infinities are not accepted; lists become tuples. An annotation not known here accepts anything.
    """
    try:
        return _fit(value, kind)
    except TypeError:
        element = _element(kind)
        hint = f": write [{shown(value)}]" if element is not None and _fits(value, element) else ""
        raise TypeError(f"must be {_said(kind)}, got {shown(value)}{hint}") from None


def shown(value: Any) -> str:
    """A value as an error shows it: as Python writes it, with dots in place of most of a long one."""
    return _SHORT.repr(value)


def _fit(value: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _fit(value, next((one for one in arguments if _fits(value, one)), type(None)))
    if (element := _element(kind)) is not None:
        _require(isinstance(value, (list, tuple)))
        return tuple(_fit(one, element) for one in value)
    if kind is dict or origin is dict:
        _require(isinstance(value, Mapping))
        return {key: _fit(one, arguments[1] if arguments else Any) for key, one in value.items()}
    if origin is Literal:
        _require(isinstance(value, str) and value in arguments)
    elif kind is int:
        _require(_is_finite(value) and value % 1 == 0)
        return int(value)
    elif kind is float:
        _require(_is_finite(value))
        return value if isinstance(value, Integral) else float(value)
    elif kind in (bool, str, type(None)):
        _require(isinstance(value, kind))
    return value


def _fits(value: Any, kind: Any) -> bool:
    try:
        _fit(value, kind)
    except TypeError:
        return False
    return True


def _is_finite(value: Any) -> bool:
    """Whether it is a number at all, and a finite one; booleans are integers to Python, and not here."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return isinstance(value, Integral) or math.isfinite(value)  # an integer can be too large for isfinite


def _require(fact: bool) -> None:
    if not fact:
        raise TypeError


def _element(kind: Any) -> Any:
    """What a sequence of this kind holds; None if it is no sequence."""
    if kind in (tuple, list):
        return Any
    return get_args(kind)[0] if get_origin(kind) in (tuple, list) else None


def _said(kind: Any) -> str:
    """A kind in words."""
    if (element := _element(kind)) is not None:
        inner = get_origin(element) or element
        return f"a list of {_SAID[inner][1] if inner in _SAID else 'values'}"
    if get_origin(kind) is Literal:
        words = get_args(kind)
        return repr(words[0]) if len(words) == 1 else f"one of {', '.join(map(str, words))}"
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_said(one) for one in get_args(kind) if one is not type(None))
    return _SAID.get(get_origin(kind) or kind, (str(kind), ""))[0]
