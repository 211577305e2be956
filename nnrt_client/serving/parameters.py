"""Parameters of requests and tensors that the server reads, and those that it tells."""

from collections.abc import Mapping

from typing_extensions import Buffer

from nnrt_client.serving.intake import Held
from nnrt_client.serving.requests import MadeOutput, Parameter, WantedOutput
from nnrt_client.serving.shared_memory import Region, SharedMemory
from nnrt_hdi.errors import InvalidParameter

_REGION, _OFFSET, _SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"


def whole(parameters: Mapping[str, Parameter], name: str, place: str) -> int:
    """Return a parameter that is a whole number, 0 if it is missing. Raises InvalidParameter for another value."""
    value = parameters.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidParameter(f"the parameter {name} is {value!r}; use a whole number", place=place)
    return value


def flag(parameters: Mapping[str, Parameter], name: str, default: bool, place: str) -> bool:
    """Return a parameter that is true or false. Raises InvalidParameter for another value."""
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise InvalidParameter(f"the parameter {name} is {value!r}; use true or false", place=place)
    return value


def wanted_output(
    name: str, parameters: Mapping[str, Parameter], memory: SharedMemory, *, is_binary: bool = True
) -> WantedOutput:
    """Return the output that a request asks for.

    Raises:
        InvalidParameter: A parameter is wrong.
        InvalidPath: It names an unknown region of shared memory.
    """
    place = f"output {name!r}"
    classes = whole(parameters, "classification", place)
    return WantedOutput(
        name,
        classes,
        _region(parameters, memory, place),
        flag(parameters, "binary_data", is_binary, place),
    )


def read_shared(parameters: Mapping[str, Parameter], memory: SharedMemory, held: Held, place: str) -> Buffer | None:
    """Return the bytes of an input in shared memory, None if it lies elsewhere.

    Raises:
        InvalidParameter: A parameter is wrong, or the memory has been truncated.
        InvalidPath: It names an unknown region.
        TooLarge: The request has too many bytes.
        Busy: All requests together have too many.
    """
    region = _region(parameters, memory, place)
    if region is None:
        return None
    held.take(region.size_bytes)
    return region.read()


def told_region(output: MadeOutput) -> dict[str, Parameter]:
    """Return the parameters of an output that was written to shared memory."""
    region = output.wanted.region
    assert region is not None
    return {_REGION: region.of.name, _OFFSET: region.offset, _SIZE: output.size_bytes}


def _region(parameters: Mapping[str, Parameter], memory: SharedMemory, place: str) -> Region | None:
    if _REGION not in parameters:
        return None
    name = parameters[_REGION]
    if not isinstance(name, str):
        raise InvalidParameter(f"the parameter {_REGION} is {name!r}; use the name of a region", place=place)
    return memory.part(name, whole(parameters, _OFFSET, place), whole(parameters, _SIZE, place), place)
