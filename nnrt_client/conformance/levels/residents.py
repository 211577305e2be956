"""Checks of the level `concurrency` with tensors that stay in device memory between runs."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered, require
from nnrt_client.conformance.levels.streams import run_request
from nnrt_client.conformance.levels.subjects import COLUMNS, ROWS, Subject, require_answer, subjects
from nnrt_client.conformance.target import Connection, Target, first_reason
from nnrt_client.tensors.resident_tensor import ResidentTensor
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.v2 import model_pb2

# Only the first run of a kind sends its description; later runs refer to it.
_TURNS = 3


def keeps_tensors_on_the_device(target: Target) -> None:
    """Check that device tensors keep what was written and serve runs as input and as output."""
    with target.session() as connection, ExitStack() as stack:
        for subject in subjects(connection):
            prepared = stack.enter_context(connection.prepare(subject.graph))
            x, y, z = (stack.enter_context(_resident(connection, subject)) for _ in range(3))
            for turn in range(_TURNS):
                given = subject.question(turn)
                x.write(given)
                prepared.executor.run_sync([x], [y])
                require_answer(subject, given, [y.numpy()], "left on the device")
                prepared.executor.run_sync([y], [z])
                require_answer(subject, subject.answer(given), [z.numpy()], "of an input that a run left on the device")
                require_answer(subject, given, list(prepared.executor.run_sync([x])), "of an input on the device")
                prepared.executor.run_sync([given], [z])
                require_answer(subject, given, [z.numpy()], "left where another one was")
                require(np.array_equal(x.numpy(), given), f"a run of {subject.name!r} changes its input on the device")


def keeps_each_output_apart(target: Target) -> None:
    """Check that each of a model's two outputs goes to the memory provided for it."""
    numbers = np.arange(1, COLUMNS + 1, dtype=np.float32)
    graph = _sum_and_product(numbers)
    with target.session() as connection, ExitStack() as stack:
        if reason := first_reason(connection.supported(graph)):
            raise NotOffered(f"the device takes no model with two outputs to try it with ({reason})")
        prepared = stack.enter_context(connection.prepare(graph))
        desc = TensorDesc._from_spec(graph.output_specs[0])
        first, second = (stack.enter_context(ResidentTensor(connection.device, desc)) for _ in range(2))
        for turn in range(_TURNS):
            given = np.full((ROWS, COLUMNS), turn + 2, np.float32)
            places = (first, second) if turn % 2 == 0 else (second, first)
            prepared.executor.run_sync([given], places)
            for output, (place, wanted) in enumerate(zip(places, (given + numbers, given * numbers), strict=True)):
                is_right = np.array_equal(place.numpy(), wanted)
                require(is_right, f"output {output} of two isn't what is left in its memory on the device")


def _sum_and_product(numbers: Array) -> Graph:
    x = TensorSpec(DataType.FLOAT32, (ROWS, COLUMNS), name="x")
    constant = TensorSpec(DataType.FLOAT32, numbers.shape, name="c")
    tensors = (x, constant, replace(x, name="sum"), replace(x, name="product"))
    nodes = (Node(NodeType.ADD_FUSION, (0, 1), (2,)), Node(NodeType.MUL_FUSION, (0, 1), (3,)))
    return Graph(tensors, nodes, (0,), (2, 3), {1: Constant.of(numbers)}, "sum and product")


def replaces_states_in_place(target: Target) -> None:
    """Check that a run may write its output over its input, or one row behind it, with the same result."""
    with target.session() as connection, ExitStack() as stack:
        for subject in subjects(connection):
            prepared = stack.enter_context(connection.prepare(subject.graph))
            state = stack.enter_context(_resident(connection, subject))
            (spec,) = subject.graph.input_specs
            row_bytes = COLUMNS * spec.item_size
            room = stack.enter_context(_resident(connection, subject, spec.byte_size + row_bytes))
            for turn in range(_TURNS):
                given = subject.question(turn)
                state.write(given)
                prepared.executor.run_sync([state], [state])
                require_answer(subject, given, [state.numpy()], "where its input was")
                room.write(given)
                request = run_request(prepared, [given])
                request.inputs[0].data.region.CopyFrom(_region(room, 0, spec.byte_size))
                request.outputs.add().data.region.CopyFrom(_region(room, row_bytes, spec.byte_size))
                connection.call("PreparedModel.Run", request)
                behind = np.frombuffer(room._memory.read(spec.byte_size + row_bytes)[row_bytes:], spec.numpy_dtype)
                made: Array = behind.reshape(spec.shape)
                require_answer(subject, given, [made], "a row behind where its input was")


def gives_no_memory_with_bytes_of_others(target: Target) -> None:
    """Check that new device memory is zero, no matter who used it before."""
    with target.session() as connection, target.session() as another:
        subject = subjects(connection)[0]
        for _ in range(_TURNS):
            with _resident(connection, subject) as secret:
                secret.write(subject.question(1) + secret.desc._to_spec().numpy_dtype.type(100))
            with _resident(another, subject) as fresh:
                found = fresh._memory.read(fresh.capacity_bytes)
                require(not any(found), "memory that is new to a client has bytes that are not zero")


def _resident(connection: Connection, subject: Subject, capacity_bytes: int | None = None) -> ResidentTensor:
    return ResidentTensor(connection.device, TensorDesc._from_spec(subject.graph.output_specs[0]), capacity_bytes)


def _region(tensor: ResidentTensor, offset: int, size_bytes: int) -> "model_pb2.BufferRegion":
    return model_pb2.BufferRegion(buffer_id=tensor._memory.id, offset=offset, data_size=size_bytes)
