"""Signatures of functions as schemas: operands before `*`, attributes after it.

The contract's operators and those of ONNX are declared so (see `nnrt_hdi.ops.operator`). An underscore at the end of a
name avoids a conflict with Python's own words and isn't part of the name.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class DeclaredOperand:
    """Parameter before `*`. It is optional if it may be None, and takes any number of operands if `is_variadic`."""

    name: str
    annotation: Any
    is_optional: bool
    is_variadic: bool


@dataclass(frozen=True, slots=True)
class DeclaredAttribute:
    """Parameter after `*`: its names as attribute and as parameter, its type and its default."""

    name: str
    parameter: str
    type: Any
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """Operands and attributes of a function.

    `groups` has the parameters that are a dataclass of several attributes, by name.
    """

    function: Callable[..., Any]
    operands: tuple[DeclaredOperand, ...]
    attributes: Mapping[str, DeclaredAttribute]
    groups: Mapping[str, type]

    @classmethod
    def of(cls, function: Callable[..., Any], skipped: int = 0) -> Self:
        """Return the signature of a function without its first `skipped` parameters."""
        hints = get_type_hints(function, include_extras=True)
        operands: list[DeclaredOperand] = []
        attributes: dict[str, DeclaredAttribute] = {}
        groups: dict[str, type] = {}
        for name, parameter in list(inspect.signature(function).parameters.items())[skipped:]:
            plain = name.rstrip("_")
            if is_dataclass(kind := hints[name]) and isinstance(kind, type):
                types = get_type_hints(kind)
                groups[name] = kind
                attributes |= {
                    each.name: DeclaredAttribute(each.name, each.name, types[each.name], each.default)
                    for each in fields(kind)
                }
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attributes[plain] = DeclaredAttribute(plain, name, hints[name], parameter.default)
            else:
                is_variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
                is_optional = parameter.default is None or type(None) in get_args(hints[name])
                operands.append(DeclaredOperand(plain, hints[name], is_optional, is_variadic))
        return cls(function, tuple(operands), attributes, groups)

    @property
    def is_variadic(self) -> bool:
        return any(operand.is_variadic for operand in self.operands)


@cache
def type_check(declared: Any) -> Callable[[object], bool]:
    """Return a function that checks whether a value has the type that an attribute declares.

    An integer counts as a float; a bool counts as neither.
    """
    if declared is Any:
        return lambda value: True
    origin, parts = get_origin(declared), get_args(declared)
    if origin is tuple:
        fits = type_check(parts[0])
        return lambda value: isinstance(value, tuple) and all(map(fits, value))
    if origin in (Union, UnionType):
        fit = [type_check(part) for part in parts]
        return lambda value: any(fits(value) for fits in fit)
    if declared in (int, float):
        numbers = (int,) if declared is int else (int, float)
        return lambda value: isinstance(value, numbers) and not isinstance(value, bool)
    kind = origin or declared
    return lambda value: isinstance(value, kind)
