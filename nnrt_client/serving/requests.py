"""Requests and responses of the protocol as plain values, which both faces make and read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnrt_client.serving.datatypes import Array
from nnrt_client.serving.shared_memory import Region
from nnrt_hdi.tensor import Shape

Parameter = bool | int | float | str

# Most bytes of a request besides tensors as bytes. Reading so many takes a second, in which no other request goes on
# and daemons hear nothing, and many times their memory.
MOST_TEXT_BYTES = 16 << 20


@dataclass(slots=True)
class InputTensor:
    """Input of a request: its name, data type and elements."""

    name: str
    datatype: str
    array: Array


@dataclass(slots=True)
class WantedOutput:
    """Output that a request asks for."""

    name: str
    # Number of classes wanted in place of the elements; 0: the elements.
    classes: int = 0
    # Where the elements go; None: into the response.
    region: Region | None = None
    # Whether the elements go into the response as bytes rather than as JSON.
    is_binary: bool = True


@dataclass(slots=True)
class InferRequest:
    """Request for an inference."""

    model: str
    # Empty: the server chooses.
    version: str
    id: str
    inputs: Sequence[InputTensor]
    # Empty: all outputs, in the model's order.
    outputs: Sequence[WantedOutput]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    # Whether outputs that it doesn't name go into the response as bytes rather than as JSON.
    is_binary: bool = True
    # Seconds within which the response is wanted; None: no limit of the client's.
    timeout_s: float | None = None


@dataclass(slots=True)
class MadeOutput:
    """Output of a response. `array` is None if the elements were written to shared memory."""

    wanted: WantedOutput
    datatype: str
    shape: Shape
    array: Array | None
    # Bytes written to shared memory.
    size_bytes: int = 0


@dataclass(slots=True)
class InferResponse:
    """Response to an inference."""

    model: str
    version: str
    id: str
    outputs: Sequence[MadeOutput]
    parameters: Mapping[str, Parameter]
