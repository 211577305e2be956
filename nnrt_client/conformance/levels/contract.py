"""Level `contract`: a daemon describes itself and behaves accordingly."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnrt_client.conformance.case import Level
from nnrt_client.conformance.levels.capabilities import (
    computes_in_float16,
    exports_models,
    keeps_settings_apart,
    loads_programs,
    profiles_runs,
    takes_performance_modes,
    takes_priorities,
    takes_unknown_dimensions,
)
from nnrt_client.conformance.levels.check import Check, NotOffered, expect_refusal, make_checks, require
from nnrt_client.conformance.levels.limits import (
    refuses_buffers_above_the_limit,
    refuses_models_above_the_limit,
    refuses_outputs_above_the_limit,
    takes_large_constants,
)
from nnrt_client.conformance.levels.streams import run_request
from nnrt_client.conformance.levels.subjects import (
    COLUMNS,
    ROWS,
    Subject,
    candidates,
    outer_sum,
    prepared_subject,
    require_answer,
    subjects,
)
from nnrt_client.conformance.target import Connection, Prepared, Target, first_reason
from nnrt_hdi import wire
from nnrt_hdi.backend import DimRange, ModelConfig
from nnrt_hdi.enums import DeviceStatus, NodeType
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, UnavailableDevice, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import Array, Shape, TensorSpec, data_type_of
from nnrt_hdi.v2 import prepared_model_pb2

_ID_BYTES = 16
_UNKNOWN_EXTENSION = {"conformance.unknown": b"1"}
_EXTENSION_REFUSALS = (InvalidParameter, Unsupported, OperationForbidden)
_UNKNOWN_ID = 2**63 - 1
# Minimum number of models to prepare and release in search of leaks.
_TIMES = 20
_MANY_ROWS = 1000


def describes_itself(target: Target) -> None:
    """Check that a device has a name and version, a known type and HDI version, and limits above 0."""
    problem = target.info.problem
    require(not problem, problem)
    with target.session() as connection:
        welcome = connection.session.welcome
        require(welcome.hdi_major == 2, f"it speaks HDI {welcome.hdi_major}.{welcome.hdi_minor}; 2.1 is right")
        for name in ("message_bytes", "session_bytes", "session_models", "session_streams", "tensor_bytes"):
            require(getattr(welcome.limits, name) > 0, f"Limits.{name} is 0; say what the limit is")
        require(welcome.limits.session_streams >= 2, "Limits.session_streams is 1; a session needs 2 at least")


def tells_sessions_apart(target: Target) -> None:
    """Check that each client gets a session ID of its own, and the same instance ID and description."""
    with target.session() as first, target.session() as second:
        ids = [each.session.welcome.session_id for each in (first, second)]
        require(all(len(each) == _ID_BYTES for each in ids), "a session id has another length than 16 bytes")
        require(ids[0] != ids[1], "two sessions have the same id")
        require(len(first.instance) == _ID_BYTES, f"the instance id has {len(first.instance)} bytes; 16 are right")
        require(first.instance == second.instance, "two sessions with one daemon see two instance ids")
        require(first.session.info == second.session.info, "it describes itself otherwise to another client")


def says_how_it_is(target: Target) -> None:
    """Check that the device's status says that it takes work."""
    with target.session() as connection:
        status = connection.device.status()
        usable = (DeviceStatus.AVAILABLE, DeviceStatus.BUSY)
        require(status in usable, f"the status is {status.name}; it takes no work")


def computes_small_models(target: Target) -> None:
    """Check the answers of the small models that all other checks need."""
    with target.session() as connection:
        for subject in subjects(connection):
            with connection.prepare(subject.graph) as prepared:
                _require_signature(prepared, subject)
                for seed in range(3):
                    given = subject.question(seed)
                    require_answer(subject, given, prepared.run([given]), f"in run {seed + 1}")


def keeps_nothing_of_earlier_runs(target: Target) -> None:
    """Check that an answer depends only on the inputs of its own run."""
    with target.session() as connection:
        for subject in subjects(connection):
            with connection.prepare(subject.graph) as prepared:
                questions = [subject.question(seed) for seed in (1, 2)]
                first = prepared.run([questions[0]])
                kept = first[0].copy()
                require_answer(subject, questions[1], prepared.run([questions[1]]), "after a run with other inputs")
                require_answer(subject, questions[0], prepared.run([questions[0]]), "after a run with other inputs")
                require(np.array_equal(first[0], kept), "an answer changes while later runs are made")


def refuses_unknown_extensions(target: Target) -> None:
    """Check that an extension that the backend doesn't know is an error, instead of being ignored."""
    config = ModelConfig(extensions=_UNKNOWN_EXTENSION)
    with target.session() as connection:
        subject = subjects(connection)[0]
        with expect_refusal("an unknown extension", *_EXTENSION_REFUSALS):
            connection.prepare(subject.graph, config).close()
        with connection.prepare(subject.graph) as prepared:
            given = subject.question(1)
            require_answer(subject, given, prepared.run([given]), "after a refusal")
            if target.info.capabilities.model_cache:
                parts = prepared.export()
                with expect_refusal("a cache with an unknown extension", *_EXTENSION_REFUSALS):
                    connection.restore(parts, config).close()


def says_why_not(target: Target) -> None:
    """Check that nodes that no device can run are refused one by one with reasons, and so are their models."""
    with target.session() as connection:
        subject = subjects(connection)[0]
        for broken in _broken_graphs(subject.graph):
            answers = connection.supported(broken)
            require(not answers[-1].supported, f"the node is said to be supported of {broken.name}")
            for place, answer in enumerate(answers[:-1]):
                require(answer.supported, f"{broken.place(place)} is refused though its own operands are right")
            with expect_refusal(broken.name, InvalidParameter, Unsupported):
                connection.prepare(broken).close()


def _broken_graphs(graph: Graph) -> list[Graph]:
    """Return copies of the graph, each with one more node that is invalid."""
    (made,) = graph.outputs
    kind = graph.tensors[made].data_type

    def with_node(name: str, node_type: NodeType, operand: Array, attrs: dict[str, Any]) -> Graph:
        count = len(graph.tensors)
        spec = TensorSpec(data_type_of(operand.dtype), operand.shape)
        result = TensorSpec(kind, (ROWS, COLUMNS))
        return Graph(
            (*graph.tensors, spec, result),
            (*graph.nodes, Node(node_type, (made, count), (count + 1,), attrs)),
            graph.inputs,
            (count + 1,),
            {**graph.constants, count: Constant.of(operand)},
            name,
        )

    dtype = graph.tensors[made].numpy_dtype
    return [
        with_node("operands that don't go together", NodeType.ADD_FUSION, np.zeros((3, 5), dtype), {}),
        with_node("a shape of another size", NodeType.RESHAPE, np.array([7, 7], np.int64), {}),
        with_node("a permutation of other dimensions", NodeType.TRANSPOSE, np.array([0, 5], np.int64), {}),
    ]


def answers_the_same_each_time(target: Target) -> None:
    """Check that every client gets the same answer about support, each time."""
    with target.session() as connection, target.session() as other:
        for subject in candidates():
            first = first_reason(connection.supported(subject.graph))
            for asked in (connection, other, connection):
                again = first_reason(asked.supported(subject.graph))
                which = f"{subject.name!r} is {'refused' if first else 'supported'} when it is asked for the first time"
                require(bool(again) == bool(first), f"{which}, and then not ({again or first})")


def refuses_wrong_inputs(target: Target) -> None:
    """Check that inputs of the wrong number, data type, shape or length are refused."""
    with target.session() as connection:
        subject, prepared = prepared_subject(connection)
        with prepared:
            given = subject.question(1)
            other = np.int8 if given.dtype != np.int8 else np.float32
            wrong = {
                "no input": [],
                "two inputs in place of one": [given, given],
                "an input of another data type": [given.astype(other)],
                "an input with a row too few": [given[:-1]],
                "an input with a column too many": [np.zeros((ROWS, COLUMNS + 1), given.dtype)],
                "an input of another rank": [given.reshape(-1)],
                "an input with a dimension more": [given[None]],
                "a scalar": [given[0, 0]],
                "an empty input": [given[:0]],
            }
            for what, inputs in wrong.items():
                with expect_refusal(what, InvalidParameter):
                    _run(connection, run_request(prepared, inputs))
            for count in (0, 1, given.nbytes - 1, given.nbytes + 1):
                request = run_request(prepared, [given])
                request.inputs[0].data.inline = given.tobytes()[:count] + b"\0" * max(count - given.nbytes, 0)
                with expect_refusal(f"{count} bytes for an input of {given.nbytes}", InvalidParameter):
                    _run(connection, request)
            require_answer(subject, given, prepared.run([given]), "after refusals")


def refuses_dynamic_misfits(target: Target) -> None:
    """Check that a model with unknown rows refuses inputs that don't fit its known dimensions."""
    if not target.info.capabilities.dynamic_input:
        raise NotOffered("the device needs every dimension")
    with target.session() as connection:
        subject = subjects(connection)[0].dynamic
        if reason := first_reason(connection.supported(subject.graph)):
            raise NotOffered(reason)
        with connection.prepare(subject.graph) as prepared:
            given = subject.question(1, 3)
            wrong = {
                "an input with a column too few": given[:, :-1],
                "an input of another rank": given[None],
                "an input of another data type": given.astype(np.int8),
            }
            for what, array in wrong.items():
                with expect_refusal(what, InvalidParameter, Unsupported):
                    _run(connection, run_request(prepared, [np.ascontiguousarray(array)]))
            require_answer(subject, given, prepared.run([given]), "after refusals")


def forgets_what_is_released(target: Target) -> None:
    """Check that released models, other sessions' models and unknown models don't run."""
    with target.session() as connection, target.session() as other:
        subject, prepared = prepared_subject(connection)
        request = run_request(prepared, [subject.question(1)])
        with expect_refusal("a model of another session", UnavailableDevice, InvalidParameter):
            _run(other, request)
        prepared.close()
        with expect_refusal("a model that was released", UnavailableDevice, InvalidParameter):
            _run(connection, request)
        request.model_id = _UNKNOWN_ID
        with expect_refusal("a model that never was", UnavailableDevice, InvalidParameter):
            _run(connection, request)


def frees_what_is_released(target: Target) -> None:
    """Check that preparing, running and releasing models again and again leaves nothing behind."""
    with target.session() as connection:
        subject = subjects(connection)[0]
        given = subject.question(1)
        most = connection.session.welcome.limits.session_models
        for _ in range(max(_TIMES, min(most + 1, 5 * _TIMES))):
            with connection.prepare(subject.graph) as prepared:
                require_answer(subject, given, prepared.run([given]), "when it is prepared again")


def says_which_shapes_it_takes(target: Target) -> None:
    """Check that the device reports one range of dimensions per input, which includes the model's shapes."""
    with target.session() as connection:
        subject = subjects(connection)[0]
        with connection.prepare(subject.graph) as prepared:
            _require_ranges(connection, prepared, [(ROWS, COLUMNS)])
        outer = outer_sum(3, 5)
        if not first_reason(connection.supported(outer)):
            with connection.prepare(outer) as prepared:
                _require_ranges(connection, prepared, [(1, 5), (3, 1)])
        dynamic = subject.dynamic
        if target.info.capabilities.dynamic_input and not first_reason(connection.supported(dynamic.graph)):
            with connection.prepare(dynamic.graph) as prepared:
                (rows,) = _require_ranges(connection, prepared, [(ROWS, COLUMNS)])
                for count in (max(rows.min_dims[0], 1), min(rows.max_dims[0], _MANY_ROWS)):
                    given = dynamic.question(1, count)
                    require_answer(dynamic, given, prepared.run([given]), f"with {count} rows, as it is said to")


def _require_ranges(connection: Connection, prepared: Prepared, shapes: Sequence[Shape]) -> list[DimRange]:
    """Return the dimension ranges of the inputs. Raises Breach unless these shapes lie in them.

    Raises NotOffered if the device reports no ranges.
    """
    request = prepared_model_pb2.GetInputDimRangesRequest(model_id=prepared.handle.model_id)
    try:
        ranges = wire.dim_ranges(connection.call("PreparedModel.GetInputDimRanges", request))
    except Unsupported as reason:
        raise NotOffered(reason.message) from reason
    require(len(ranges) == len(shapes), f"there are {len(ranges)} ranges for {len(shapes)} inputs; give one for each")
    for both, shape in zip(ranges, shapes, strict=True):
        fits = len(both.min_dims) == len(both.max_dims) == len(shape) and all(
            low <= dim <= high for low, dim, high in zip(both.min_dims, shape, both.max_dims, strict=True)
        )
        said = f"from {list(both.min_dims)} to {list(both.max_dims)}"
        require(fits, f"an input that may be {list(shape)} is said to be {said}")
    return ranges


def _require_signature(prepared: Prepared, subject: Subject) -> None:
    for what, specs, wanted in (
        ("input", prepared.inputs, subject.graph.input_specs),
        ("output", prepared.outputs, subject.graph.output_specs),
    ):
        shown = [(spec.data_type, spec.shape) for spec in specs]
        right = [(spec.data_type, spec.shape) for spec in wanted]
        require(shown == right, f"the {what} of {subject.name!r} is said to be {shown}; {right} is right")


def _run(connection: Connection, request: Any) -> Any:
    return connection.call("PreparedModel.Run", request)


def checks() -> list[Check]:
    """Return the checks of the level."""
    return make_checks(
        Level.CONTRACT,
        describes_itself,
        tells_sessions_apart,
        says_how_it_is,
        computes_small_models,
        keeps_nothing_of_earlier_runs,
        takes_unknown_dimensions,
        computes_in_float16,
        keeps_settings_apart,
        takes_performance_modes,
        takes_priorities,
        exports_models,
        profiles_runs,
        loads_programs,
        refuses_unknown_extensions,
        says_why_not,
        answers_the_same_each_time,
        refuses_wrong_inputs,
        refuses_dynamic_misfits,
        forgets_what_is_released,
        frees_what_is_released,
        says_which_shapes_it_takes,
        takes_large_constants,
        refuses_outputs_above_the_limit,
        refuses_buffers_above_the_limit,
        refuses_models_above_the_limit,
    )
