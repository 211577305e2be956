"""Checks of the level `contract` with large tensors and with requests above the daemon's limits."""

from contextlib import ExitStack

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered, expect_refusal, require
from nnrt_client.conformance.levels.subjects import COLUMNS, Subject, outer_sum, require_answer, subjects
from nnrt_client.conformance.target import Target, first_reason
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import device_pb2

# Largest Limits.session_models with which the check prepares that many models.
_MANY_MODELS = 200


def takes_large_constants(target: Target) -> None:
    """Check that a constant that the client uploads in many chunks arrives intact."""
    rows = 1 << 14
    with target.session() as connection:
        taken = {subject.name: subject for subject in subjects(connection)}
        if "sum" not in taken:
            raise NotOffered("the device doesn't add")
        constant = (np.arange(rows * COLUMNS, dtype=np.int64) % 8191 - 4095).astype(np.float32).reshape(rows, COLUMNS)
        x = TensorSpec(DataType.FLOAT32, (rows, COLUMNS))
        node = Node(NodeType.ADD_FUSION, (0, 1), (2,))
        graph = Graph((x, x, x), (node,), (0,), (2,), {1: Constant.of(constant)}, "large constant")
        if reason := first_reason(connection.supported(graph)):
            raise NotOffered(reason)
        subject = Subject("large constant", graph, lambda given: np.add(given, constant))
        with connection.prepare(graph) as prepared:
            given = subject.question(1, rows)
            require_answer(subject, given, prepared.run([given]), f"with a constant of {constant.nbytes} bytes")


def refuses_outputs_above_the_limit(target: Target) -> None:
    """Check that the daemon refuses outputs above Limits.tensor_bytes before it allocates memory for them.

    It must refuse known shapes before it compiles, and other shapes before it computes.
    """
    with target.session() as connection:
        limit = connection.session.welcome.limits.tensor_bytes
        side = int(np.ceil(np.sqrt(limit / 4))) + 1
        known, unknown = outer_sum(side, side), outer_sum(-1, -1)
        if first_reason(connection.supported(outer_sum(3, 5))):
            raise NotOffered("the device doesn't add a row and a column")
        reason = first_reason(connection.supported(known))
        require(reason, f"an output of {side} x {side} x 4 bytes is supported; Limits.tensor_bytes is {limit}")
        with expect_refusal("an output above Limits.tensor_bytes", OutOfMemory, InvalidParameter, Unsupported):
            connection.prepare(known).close()
        if target.info.capabilities.dynamic_input and not first_reason(connection.supported(unknown)):
            with connection.prepare(unknown) as prepared:
                row, column = np.zeros((1, side), np.float32), np.zeros((side, 1), np.float32)
                with expect_refusal("a run with an output above Limits.tensor_bytes", OutOfMemory, InvalidParameter):
                    prepared.run([row, column])
                small = prepared.run([row[:, :2] + 1, column[:3]])
                require(np.array_equal(small[0], np.ones((3, 2))), "the run after it has another answer than 1 + 0")


def refuses_buffers_above_the_limit(target: Target) -> None:
    """Check that a session gets no more memory than Limits.session_bytes."""
    with target.session() as connection:
        limit = connection.session.welcome.limits.session_bytes
        for length in (0, 2**62):
            with expect_refusal(f"a buffer of {length} bytes", InvalidParameter, OutOfMemory):
                connection.call("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=length))
        with expect_refusal(f"buffers of more than {limit} bytes", OutOfMemory, InvalidParameter):
            for _ in range(limit // (1 << 30) + 2):
                connection.call("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=1 << 30))


def refuses_models_above_the_limit(target: Target) -> None:
    """Check that a session gets no more models than Limits.session_models."""
    with target.session() as connection, ExitStack() as stack:
        most = connection.session.welcome.limits.session_models
        subject = subjects(connection)[0]
        if most > _MANY_MODELS:
            raise NotOffered(f"a session may have {most} models, too many to try")
        for _ in range(most):
            prepared = stack.enter_context(connection.prepare(subject.graph))
        with expect_refusal(f"one model more than {most}", OutOfMemory, OperationForbidden):
            connection.prepare(subject.graph).close()
        given = subject.question(1)
        require_answer(subject, given, prepared.run([given]), "beside a model too many")
