"""JSON documents, and the fields of their objects."""

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from nnrt_client.serving.errors import TooLarge
from nnrt_client.serving.requests import MOST_TEXT_BYTES, Parameter
from nnrt_hdi.errors import InvalidParameter

_NAMES = {str: "a string", list: "a list", dict: "an object"}

ValueT = TypeVar("ValueT", str, list[Any], dict[str, Any])


def parse(data: "bytes | bytearray | memoryview") -> dict[str, Any]:
    """Return the object that a document has; an empty document has an empty one.

    Raises:
        TooLarge: The document has too many bytes.
        InvalidParameter: It is no JSON, or no object.
    """
    if len(data) > MOST_TEXT_BYTES:
        raise TooLarge(f"its JSON has {len(data)} bytes; use at most {MOST_TEXT_BYTES}, and binary data for tensors")
    if not data:
        return {}
    try:
        document = json.loads(str(data, "utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise InvalidParameter("the JSON is nested too deeply") from None
    except ValueError as error:
        raise InvalidParameter(f"the request is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidParameter(f"the JSON is {type(document).__name__}; use an object")
    return document


def text_of(document: Any) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def field(of: Mapping[str, Any], name: str, kind: type[ValueT], place: str, default: ValueT | None = None) -> ValueT:
    """Return a field of an object. A field that is null is missing.

    Raises:
        InvalidParameter: It is of another type, or it is missing and has no default.
    """
    value = of.get(name)
    if value is None:
        if default is None:
            raise InvalidParameter(f"the field {name!r} is missing", place=place)
        return default
    if not isinstance(value, kind):
        raise InvalidParameter(f"the field {name!r} is {type(value).__name__}; use {_NAMES[kind]}", place=place)
    return value


def objects(of: Mapping[str, Any], name: str, place: str, default: list[Any] | None = None) -> list[dict[str, Any]]:
    """Return a field of an object that is a list of objects. Raises InvalidParameter if it is anything else."""
    found = field(of, name, list, place, default)
    for at, one in enumerate(found):
        if not isinstance(one, dict):
            raise InvalidParameter(f"{name}[{at}] is {type(one).__name__}; use an object", place=place)
    return found


def whole_numbers(of: Mapping[str, Any], name: str, place: str) -> tuple[int, ...]:
    """Return a field of an object that is a list of whole numbers. Raises InvalidParameter if it is anything else."""
    found = field(of, name, list, place)
    if any(type(one) is not int for one in found):
        raise InvalidParameter(f"the field {name!r} has other elements than whole numbers", place=place)
    return tuple(found)


def parameters(of: Mapping[str, Any], place: str) -> dict[str, Parameter]:
    """Return the parameters of an object. Raises InvalidParameter for values that no parameter has."""
    found = field(of, "parameters", dict, place, {})
    for name, value in found.items():
        is_whole = isinstance(value, int) and -(1 << 63) <= value < 1 << 64
        is_finite = isinstance(value, float) and math.isfinite(value)
        if not (is_whole or is_finite or isinstance(value, str)):
            raise InvalidParameter(
                f"the parameter {name!r} is {type(value).__name__} or too large; use a string, a number, true or false",
                place=place,
            )
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")
