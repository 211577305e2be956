"""Random requests from a seed: any values in a valid structure, one changed field, or corrupted bytes."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from model_draft import Draft
from raw_client import INPUT, METHODS, VALUES, Method, RawClient, chunks, io_tensor
from ways import describe_runs

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.v2 import device_pb2, model_pb2, prepared_model_pb2, sequence_pb2, session_pb2

# The small numbers are valid handles, indices and sizes.
_NUMBERS = (0, 1, 2, 3, 4, 12, 100, 1 << 16, (1 << 31) - 1)
_LARGE = {FieldDescriptor.TYPE_INT64: (1 << 63) - 1, FieldDescriptor.TYPE_UINT64: (1 << 64) - 1}
_SIGNED = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64)
_REALS = (0.0, -1.0, 1e-30, 3e38, float("inf"), float("nan"))
_DEPTH = 4


class FuzzedMessages:
    """Generator of random requests."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311

    def requests(self, method: Method) -> list[Message | bytes]:
        """Return the requests of one call."""
        count = self.random.choice((1, 1, 1, 2, 5)) if method.client_streaming else 1
        return [self._request(method) for _ in range(count)]

    def _request(self, method: Method) -> Message | bytes:
        way = self.random.random()
        sound = _SOUND.get(method.name)
        if way < 0.3 and sound is not None:
            return sound()
        message = self._any(method.request, _DEPTH)
        if way < 0.7 and sound is not None:
            message = sound()
            self._change(message)
        if way < 0.9:
            return message
        data = bytearray(message.SerializeToString())
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(data))
            data[at : at + self.random.randint(0, 2)] = self.random.randbytes(self.random.randint(0, 3))
        return bytes(data)

    def _any(self, kind: type[Message], depth: int) -> Message:
        message = kind()
        for field in message.DESCRIPTOR.fields:
            if self.random.random() < 0.4:
                self._set(message, field, depth)
        return message

    def _change(self, message: Message) -> None:
        """Change one random field of a message or of a message in it."""
        field: Any = self.random.choice(message.DESCRIPTOR.fields)
        nested = [value for _, value in message.ListFields()]
        inner = [one for value in nested for one in (value if _is_list(value) else [value]) if isinstance(one, Message)]
        if inner and self.random.random() < 0.7:
            self._change(self.random.choice(inner))
        elif message.DESCRIPTOR.fields:
            message.ClearField(field.name)
            self._set(message, field, _DEPTH)

    def _set(self, message: Message, field: Any, depth: int) -> None:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            getattr(message, field.name)[self.random.choice(("", "fault", "x" * 1000))] = b"1"
        elif field.message_type is not None:
            if depth:
                for _ in range(self.random.randint(1, 3) if field.is_repeated else 1):
                    target = getattr(message, field.name)
                    target = target.add() if field.is_repeated else target
                    target.SetInParent()
                    target.MergeFrom(self._any(type(target), depth - 1))
        elif field.is_repeated:
            getattr(message, field.name).extend(self._value(field) for _ in range(self.random.randint(0, 5)))
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        pick = self.random.choice
        if field.type == FieldDescriptor.TYPE_BOOL:
            return pick((False, True))
        if field.type == FieldDescriptor.TYPE_STRING:
            return pick(("", "x", "onnx", "\n", "x" * 300))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.randbytes(pick((0, 1, 12, 16, 32, 5000)))
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return pick(_REALS)
        if field.enum_type is not None:
            return pick([*(value.number for value in field.enum_type.values), 99])
        number = pick((*_NUMBERS, _LARGE.get(field.type, 7)))
        return -number if field.type in _SIGNED and pick((False, True)) else number


def _is_list(value: Any) -> bool:
    return not isinstance(value, Message | str | bytes) and hasattr(value, "__len__") and not hasattr(value, "keys")


def _run() -> Message:
    array = io_tensor(np.array(INPUT, np.float32))
    return prepared_model_pb2.RunRequest(model_id=1, inputs=[array])


def _frames() -> Message:
    kind = describe_runs(1, (len(INPUT),))
    return prepared_model_pb2.RunPacket(frames=kind.frame(np.array(INPUT, np.float32)))


def loop_request(model_id: int, sequence_id: int) -> sequence_pb2.LoopRequest:
    """Return a loop of two runs of a model: its input is value 1, its output value 2."""
    value = values_of(1, INPUT)
    inputs = [prepared_model_pb2.TensorDescription(place=prepared_model_pb2.TENSOR_PLACE_SEQUENCE, value=1)]
    outputs = [prepared_model_pb2.TensorDescription(place=prepared_model_pb2.TENSOR_PLACE_NOWHERE, value=2)]
    description = prepared_model_pb2.RunDescription(model_id=model_id, inputs=inputs, outputs=outputs)
    run = sequence_pb2.LoopRun(values=[value], description=description, delivered=[2])
    return sequence_pb2.LoopRequest(write={"sequence_id": sequence_id}, runs=[run, run], max_steps=2)


def values_of(number: int, elements: Sequence[float]) -> sequence_pb2.SequenceValue:
    """Return the message of a value."""
    array = np.array(elements, np.float32)
    return sequence_pb2.SequenceValue(
        number=number, data_type=wire.number(DataType.FLOAT32), dimensions=array.shape, data=array.tobytes()
    )


# Ids of sequences, of which few are open at a time: the others are released.
_sequences = itertools.cycle(range(1, 6))


_SOUND: dict[str, Callable[[], Message]] = {
    "DeviceSession.Open": lambda: session_pb2.SessionRequest(hello=session_pb2.Hello(client_name="fuzz")),
    "NnrtDevice.GetSupportedOperation": lambda: device_pb2.GetSupportedOperationRequest(
        model=Draft.sum_of_input_and(VALUES).message
    ),
    "NnrtDevice.PrepareModel": lambda: device_pb2.PrepareModelRequest(model=Draft.sum_of_input_and(VALUES).message),
    "NnrtDevice.UploadConstants": lambda: chunks(bytes(5000))[0],
    "NnrtDevice.AllocateBuffer": lambda: device_pb2.AllocateBufferRequest(length=12),
    "NnrtDevice.WriteBuffer": lambda: device_pb2.BufferChunk(buffer_id=1, data=bytes(12)),
    "NnrtDevice.ReadBuffer": lambda: model_pb2.BufferRegion(buffer_id=1, data_size=12),
    "PreparedModel.Run": _run,
    "PreparedModel.RunStream": _frames,
    "PreparedModel.ExportModelCache": lambda: prepared_model_pb2.ExportModelCacheRequest(model_id=1),
    "Sequences.Write": lambda: sequence_pb2.SequenceWrite(
        sequence_id=next(_sequences), values=[values_of(1, INPUT), values_of(3, VALUES)]
    ),
    "Sequences.Read": lambda: sequence_pb2.SequenceRead(sequence_id=next(_sequences), numbers=[1, 2]),
    "Sequences.Loop": lambda: loop_request(1, next(_sequences)),
    "Sequences.Stop": lambda: sequence_pb2.StopLoopRequest(sequence_id=next(_sequences)),
    "Sequences.Release": lambda: sequence_pb2.ReleaseSequenceRequest(sequence_id=next(_sequences)),
}


def fuzz(client: RawClient, messages: FuzzedMessages) -> None:
    """Call a random method with random requests, and ignore every error that the daemon returns."""
    method = messages.random.choice(list(METHODS.values()))
    with suppress(NnrtError, grpc.RpcError):
        client.call(method.name, *messages.requests(method))
