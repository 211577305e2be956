"""Values of sequences in messages, each in one or more (sequence.proto)."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from nnrt_hdi.chunks import allocate_array, cut
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, data_type_of, flat_bytes
from nnrt_hdi.v2 import sequence_pb2
from nnrt_hdi.wire.enums import known_enum, number
from nnrt_hdi.wire.errors import at_place
from nnrt_hdi.wire.tensors import array_from_bytes, shape_of


def value_messages(at: int, array: Array, message_bytes: int) -> Iterator[sequence_pb2.SequenceValue]:
    """Yield the messages of value `at`, each with at most about `message_bytes`; 0: 1 MiB."""
    data = flat_bytes(np.ascontiguousarray(array)) if array.nbytes else memoryview(b"")
    message = sequence_pb2.SequenceValue(number=at, data_type=number(data_type_of(array.dtype)), dimensions=array.shape)
    for _, piece in cut(data, message_bytes):
        message.data = bytes(piece)
        yield message
        message = sequence_pb2.SequenceValue()
    if not data:
        yield message


def whole_value(at: int, array: Array) -> sequence_pb2.SequenceValue:
    """Return the only message of value `at`."""
    return sequence_pb2.SequenceValue(
        number=at, data_type=number(data_type_of(array.dtype)), dimensions=array.shape, data=array.tobytes()
    )


def whole_arrays(messages: Iterable[sequence_pb2.SequenceValue]) -> dict[int, Array]:
    """Return values that have one message each, as views of its bytes. Raise InvalidParameter for an invalid one."""
    arrays = {}
    for message in messages:
        if not message.number:
            raise InvalidParameter("a value has no number; here values have one message each")
        place = f"value {message.number}"
        spec = at_place(place, partial(_spec, message))
        arrays[message.number] = at_place(place, partial(array_from_bytes, message.data, TensorForm(spec)))
    return arrays


class ArrivingValues:
    """Values whose messages arrive one after the other."""

    def __init__(self, reserve: Callable[[TensorSpec], object] = lambda spec: None) -> None:
        """Accept values for which `reserve` raises nothing, called before their memory is allocated."""
        self._reserve = reserve
        self._arrays: dict[int, Array] = {}
        # Bytes of the latest value that have not come yet.
        self._rest = memoryview(bytearray())

    def take(self, messages: Iterable[sequence_pb2.SequenceValue]) -> None:
        """Take messages.

        Raises:
            InvalidParameter: A message has no type or negative dimensions, or bytes that don't belong to it.
            OutOfMemory: There is no room for a value; also what `reserve` raises.
        """
        for message in messages:
            if message.number:
                self._require_complete()
                self._begin(message)
            if len(message.data) > len(self._rest):
                raise InvalidParameter(f"{len(message.data)} bytes came; the value lacks {len(self._rest)}")
            if message.data:
                self._rest[: len(message.data)] = message.data
                self._rest = self._rest[len(message.data) :]

    def arrays(self) -> dict[int, Array]:
        """Return the values by number, once all messages have come. Raise InvalidParameter if bytes are missing."""
        self._require_complete()
        return self._arrays

    def _begin(self, message: sequence_pb2.SequenceValue) -> None:
        spec = at_place(f"value {message.number}", partial(_spec, message))
        if message.number in self._arrays:
            raise InvalidParameter(f"value {message.number} came twice; send it once")
        self._reserve(spec)
        self._arrays[message.number] = array = allocate_array(spec)
        self._rest = flat_bytes(array) if array.nbytes else memoryview(bytearray())

    def _require_complete(self) -> None:
        if len(self._rest):
            raise InvalidParameter(f"the latest value lacks {len(self._rest)} bytes")


def _spec(message: sequence_pb2.SequenceValue) -> TensorSpec:
    """Return the spec of a value; raise InvalidParameter if it has none."""
    spec = TensorSpec(known_enum(DataType, message.data_type, "data_type"), shape_of(message.dimensions))
    if spec.data_type is DataType.UNKNOWN or spec.is_dynamic:
        raise InvalidParameter(f"it is {spec}; a value has a data type, and no dimension below 0")
    return spec
