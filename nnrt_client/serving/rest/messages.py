"""Bodies of HTTP as requests, and responses as parts of bodies."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

from nnrt_client.serving.datatypes import Array, from_bytes, to_bytes
from nnrt_client.serving.intake import Held
from nnrt_client.serving.parameters import flag, read_shared, told_region, wanted_output, whole
from nnrt_client.serving.requests import InferRequest, InferResponse, InputTensor, MadeOutput, WantedOutput
from nnrt_client.serving.rest.documents import field, objects, parameters, parse, text_of, whole_numbers
from nnrt_client.serving.rest.elements import from_elements, to_elements
from nnrt_client.serving.shared_memory import SharedMemory
from nnrt_hdi.errors import InvalidParameter

# Parameter of a tensor whose bytes follow the JSON, and of a request whose outputs are to do so.
_SIZE, _BINARY_OUTPUT = "binary_data_size", "binary_data_output"
# Most elements of an output that becomes JSON, and those that do so before others get their turn.
_MOST_ELEMENTS, _PIECE = 1 << 22, 1 << 13


def request_of(
    model: str, version: str, body: Buffer, json_bytes: int | None, memory: SharedMemory, held: Held
) -> InferRequest:
    """Return the request in a body.

    Args:
        model: Name of the model.
        version: Version of it; empty: the server chooses.
        body: JSON, and the bytes of tensors behind it.
        json_bytes: Number of bytes of the JSON; None: all.
        memory: Regions of shared memory.
        held: What the request holds, for the bytes that it has in shared memory.

    Raises:
        InvalidParameter: It is no request, or its tensors are wrong.
        InvalidPath: It names an unknown region of shared memory.
        TooLarge: It has too many bytes.
        Busy: All requests together have too many.
    """
    view = memoryview(body).toreadonly()
    if json_bytes is not None and json_bytes > len(view):
        raise InvalidParameter(f"the JSON has {json_bytes} bytes; the body has {len(view)}")
    document = parse(view[:json_bytes])
    given = parameters(document, "request")
    is_binary = flag(given, _BINARY_OUTPUT, False, "request")
    inputs = _Inputs(view[len(view) if json_bytes is None else json_bytes :], memory, held)
    return InferRequest(
        model,
        version,
        field(document, "id", str, "request", ""),
        inputs.read(objects(document, "inputs", "request")),
        [_wanted(one, memory, is_binary) for one in objects(document, "outputs", "request", [])],
        given,
        is_binary=is_binary,
    )


async def parts_of(response: InferResponse) -> tuple[bytes, Sequence[Buffer]]:
    """Return the JSON of a response, and the bytes of tensors that follow it. No element is copied.

    Raises:
        InvalidParameter: JSON can't tell an output.
    """
    head: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        head["id"] = response.id
    if response.parameters:
        head["parameters"] = response.parameters
    parts: list[Buffer] = []
    outputs = [await _told(output, parts) for output in response.outputs]
    return b"".join((text_of(head)[:-1], b',"outputs":[', b",".join(outputs), b"]}")), parts


class _Inputs:
    """Reads the inputs of a request."""

    def __init__(self, binary: memoryview, memory: SharedMemory, held: Held) -> None:
        """Create it. `binary` has the bytes that follow the JSON."""
        self._binary = binary
        self._memory = memory
        self._held = held
        self._at = 0

    def read(self, given: Sequence[Mapping[str, Any]]) -> list[InputTensor]:
        """Return the inputs. Raises InvalidParameter, InvalidPath, TooLarge or Busy."""
        inputs = [self._tensor(one, at) for at, one in enumerate(given)]
        if left := len(self._binary) - self._at:
            raise InvalidParameter(f"{left} bytes follow the JSON that belong to no input")
        return inputs

    def _tensor(self, given: Mapping[str, Any], at: int) -> InputTensor:
        name = field(given, "name", str, f"inputs[{at}]")
        place = f"input {name!r}"
        datatype, shape = field(given, "datatype", str, place), whole_numbers(given, "shape", place)
        return InputTensor(name, datatype, self._array(given, datatype, shape, place))

    def _array(self, given: Mapping[str, Any], datatype: str, shape: tuple[int, ...], place: str) -> Array:
        its = parameters(given, place)
        data = given.get("data")
        behind = self._take(whole(its, _SIZE, place), place) if _SIZE in its else None
        shared = read_shared(its, self._memory, self._held, place)
        found = [one for one in (data, behind, shared) if one is not None]
        if len(found) != 1:
            raise InvalidParameter(
                f"it has {len(found)} of the field data and the parameters {_SIZE} and shared_memory_region; use one",
                place=place,
            )
        if data is not None:
            return from_elements(datatype, shape, data, place)
        return from_bytes(datatype, shape, found[0], place)

    def _take(self, size_bytes: int, place: str) -> memoryview:
        begin, self._at = self._at, self._at + size_bytes
        if self._at > len(self._binary):
            raise InvalidParameter(
                f"its {_SIZE} is {size_bytes}; {len(self._binary) - begin} bytes are left behind the JSON", place=place
            )
        return self._binary[begin : self._at]


def _wanted(given: Mapping[str, Any], memory: SharedMemory, is_binary: bool) -> WantedOutput:
    name = field(given, "name", str, "outputs")
    return wanted_output(name, parameters(given, f"output {name!r}"), memory, is_binary=is_binary)


async def _told(output: MadeOutput, parts: list[Buffer]) -> bytes:
    """Return the JSON of an output; its bytes are added to `parts` if they were asked for."""
    told = {"name": output.wanted.name, "datatype": output.datatype, "shape": output.shape}
    if output.array is None:
        return text_of({**told, "parameters": told_region(output)})
    if output.wanted.is_binary:
        data = memoryview(to_bytes(output.array))
        parts.append(data)
        return text_of({**told, "parameters": {_SIZE: data.nbytes}})
    elements = await _text(output.array, output.datatype, f"output {output.wanted.name!r}")
    return b"".join((text_of(told)[:-1], b',"data":[', elements, b"]}"))


async def _text(array: Array, datatype: str, place: str) -> bytes:
    """Return the elements of a tensor as those of a list of JSON. Raises InvalidParameter if there are too many."""
    if array.size > _MOST_ELEMENTS:
        raise InvalidParameter(f"it has {array.size} elements; ask for binary data above {_MOST_ELEMENTS}", place=place)
    flat, pieces = array.ravel(), list[bytes]()
    for at in range(0, max(flat.size, 1), _PIECE):
        if at:
            await asyncio.sleep(0)
        pieces.append(text_of(to_elements(flat[at : at + _PIECE], datatype, place))[1:-1])
    return b",".join(pieces)
