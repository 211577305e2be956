"""Both faces of a server by Triton's clients, which are alike but for what they return."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

from serving.served import ServerProcess

FACES = ("http", "grpc")
_CLIENTS: dict[str, ModuleType] = {"http": tritonclient.http, "grpc": tritonclient.grpc}


class Face:
    """Client of one face."""

    def __init__(self, name: str, client: Any) -> None:
        self.name = name
        self.client = client
        self._module = _CLIENTS[name]

    def input(self, name: str, array: NDArray[Any]) -> Any:
        given = self._module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        given.set_data_from_numpy(array)
        return given

    def shared_input(self, name: str, shape: Sequence[int], datatype: str, region: str, size: int, at: int = 0) -> Any:
        given = self._module.InferInput(name, list(shape), datatype)
        given.set_shared_memory(region, size, at)
        return given

    def output(self, name: str, *, classes: int = 0) -> Any:
        return self._module.InferRequestedOutput(name, class_count=classes)

    def shared_output(self, name: str, region: str, size: int, at: int = 0) -> Any:
        wanted = self._module.InferRequestedOutput(name)
        wanted.set_shared_memory(region, size, at)
        return wanted

    def told(self, answer: Any, field: str = "") -> Any:
        """Return an answer, or the field of a message that the answer is in, as JSON has it."""
        if self.name == "http":
            return answer
        return [self._fields(one) for one in getattr(answer, field)] if field else self._fields(answer)

    def parameters(self, output: Any) -> dict[str, Any]:
        """Return the parameters of an output of a response."""
        if self.name == "http":
            found: dict[str, Any] = output.get("parameters", {})
            return found
        return {name: getattr(one, one.WhichOneof("parameter_choice")) for name, one in output.parameters.items()}

    @staticmethod
    def _fields(message: Any) -> dict[str, Any]:
        return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


@contextmanager
def face_of(name: str, server: ServerProcess) -> Iterator[Face]:
    """Yield a client of a face of a server."""
    options = {"concurrency": 8} if name == "http" else {}
    with _CLIENTS[name].InferenceServerClient(getattr(server, name), **options) as client:
        yield Face(name, client)
