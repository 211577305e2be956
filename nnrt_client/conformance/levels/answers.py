"""Runner of cases: compares a device's answers with those of independent code."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Run
from nnrt_client.conformance.outcome import Outcome, Verdict, outcome_from_error, quote_error
from nnrt_client.conformance.target import Breach, Connection, Prepared, Target, first_reason
from nnrt_hdi.backend import Capabilities, ModelConfig, Support
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationForbidden,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.ops.rows_apart import forms_of
from nnrt_hdi.ops.rows_apart.form import Rows
from nnrt_hdi.tensor import UNKNOWN_DIM

AnyArray = NDArray[Any]

# Row counts that no block size divides, and the maximum number of elements of a run.
_ROWS = (17, 4097, 65537, 100_003)
_MOST_ELEMENTS = 1 << 17
# Node types for which devices may have a workspace or state.
_STATEFUL_TYPES = {
    NodeType.ARGMAX_FUSION,
    NodeType.AVGPOOL_FUSION,
    NodeType.CONV2D_FUSION,
    NodeType.CONV2D_TRANSPOSE_FUSION,
    NodeType.DETECTION_POST_PROCESS,
    NodeType.FULL_CONNECTION,
    NodeType.INSTANCE_NORM,
    NodeType.LAYER_NORM_FUSION,
    NodeType.LOG_SOFTMAX,
    NodeType.LRN,
    NodeType.LSTM,
    NodeType.MATMUL_FUSION,
    NodeType.MAX_POOL_FUSION,
    NodeType.REDUCE_FUSION,
    NodeType.RESIZE,
    NodeType.SOFTMAX,
    NodeType.TOPK_FUSION,
}
_CONCURRENT_RUNS = 8

_REFUSALS = (InvalidParameter, OperationForbidden, OutOfMemory, Unsupported)


@dataclass(frozen=True, slots=True)
class Answers:
    """Trial of a case: prepares it in a session of its own, makes its runs, and repeats a run in several ways."""

    case: Case

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def level(self) -> Level:
        return self.case.level

    @property
    def family(self) -> str:
        return self.case.family

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        return self.case.node_types

    @property
    def data_type(self) -> DataType:
        return self.case.data_type

    @property
    def is_quick(self) -> bool:
        return self.case.is_quick

    def run(self, target: Target) -> Outcome:
        """Prepare and run the case. Raises UnavailableDevice and ConnectionFailed if the daemon has ended."""
        with target.session() as connection:
            try:
                return run_case(self.case, connection)
            except Breach as broken:
                return Outcome(Verdict.WRONG, str(broken))


def run_case(case: Case, connection: Connection) -> Outcome:
    """Prepare a case and run it."""
    if lacking := _missing_capability(case, connection.session.info.capabilities):
        return Outcome(Verdict.REFUSED, f"the device has no {lacking}", is_unclaimed=True)
    config = ModelConfig(enable_float16=case.enable_float16)
    supports = connection.supported(case.graph)
    if mistaken := _order_dependence(case.graph, supports, connection):
        return Outcome(Verdict.WRONG, mistaken)
    refusals = [support for support in supports if not support.supported]
    if refusals:
        return _refusal_outcome(case, connection, config, first_reason(refusals))
    try:
        prepared = connection.prepare(case.graph, config)
    except _REFUSALS as error:
        why = f"every node is said to be supported, and the model is refused: {quote_error(error)}"
        return Outcome(Verdict.FAILED, why, code=error.code)
    with prepared:
        if misfit := _signature_mismatch(case.graph, prepared):
            return Outcome(Verdict.WRONG, misfit)
        outcomes = [_run_once(case, run, prepared) for run in case.runs]
        outcomes += [_add_context("with more rows", _run_once(case, run, prepared)) for run in _repeat_rows(case)]
        outcomes += _run_again(case, prepared)
        if case.node_types[0] in _STATEFUL_TYPES and case.is_quick:
            outcomes += _run_concurrently(case, prepared)
        if case.level is Level.GRAPHS and connection.session.info.capabilities.model_cache:
            outcomes += _run_restored(case, connection, prepared, config)
        return _worst_outcome(outcomes)


def _order_dependence(graph: Graph, supports: Sequence[Support], connection: Connection) -> str:
    """Return a message about a node whose support depends on the order of independent nodes; empty if none."""
    order = _reorder(graph)
    if order == [*range(len(graph.nodes))]:
        return ""
    turned = replace(graph, nodes=tuple(graph.nodes[at] for at in order))
    for at, support in zip(order, connection.supported(turned), strict=True):
        if support.supported != supports[at].supported:
            told, before = ("supported" if each.supported else "refused" for each in (support, supports[at]))
            return f"{graph.place(at)} is {told} when the nodes stand in another order, and {before} before"
    return ""


def _reorder(graph: Graph) -> list[int]:
    """Return another topological order of the nodes: of the nodes that are ready, always the last one."""
    made = {result: at for at, node in enumerate(graph.nodes) for result in node.outputs}
    needs = [{made[index] for index in node.inputs if index in made} for node in graph.nodes]
    readers: dict[int, list[int]] = defaultdict(list)
    for at, needed in enumerate(needs):
        for before in needed:
            readers[before].append(at)
    left, order = [len(needed) for needed in needs], list[int]()
    ready = [at for at, count in enumerate(left) if not count]
    while ready:
        order.append(ready.pop())
        for reader in readers[order[-1]]:
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    return order


def _missing_capability(case: Case, capabilities: Capabilities) -> str:
    """Return the capability that a case needs and the device doesn't claim; empty if none."""
    if case.enable_float16 and not capabilities.float16_precision:
        return "float16_precision"
    if any(spec.is_dynamic for spec in case.graph.input_specs) and not capabilities.dynamic_input:
        return "dynamic_input"
    return ""


def _signature_mismatch(graph: Graph, prepared: Prepared) -> str:
    """Return a message if the prepared model's inputs and outputs don't match the graph; empty if they do."""
    for kind, told, said_before in (
        ("input", prepared.inputs, graph.input_specs),
        ("output", prepared.outputs, graph.output_specs),
    ):
        if len(told) != len(said_before):
            return f"the prepared model has {len(told)} {kind}s in place of {len(said_before)}"
        for number, (spec, wanted) in enumerate(zip(told, said_before, strict=True)):
            if (spec.data_type, spec.rank) != (wanted.data_type, wanted.rank):
                return f"{kind} {number} of the prepared model is {spec} in place of {wanted}"
            if wanted.quant and spec.quant != wanted.quant:
                return f"{kind} {number} of the prepared model has other quantization parameters than the graph's"
            if kind == "input" and (spec.shape, spec.format) != (wanted.shape, wanted.format):
                shown, right = (f"{each} {each.format.name}" for each in (spec, wanted))
                return f"input {number} of the prepared model is {shown} in place of {right}"
    return ""


def _refusal_outcome(case: Case, connection: Connection, config: ModelConfig, reason: str) -> Outcome:
    """Return the outcome of a case with an unsupported node: REFUSED if `prepare` refuses the model too."""
    with suppress(*_REFUSALS):
        connection.prepare(case.graph, config).close()
        return Outcome(Verdict.WRONG, f"a node is said not to be supported ({reason}), and the model is taken")
    return Outcome(Verdict.REFUSED, reason)


def _run_once(case: Case, run: Run, prepared: Prepared) -> Outcome:
    if run.wanted is None:
        return _run_invalid(run, prepared)
    try:
        outputs = prepared.run(run.inputs)
    except (Unsupported, OutOfMemory) as error:
        # What a model with unknown dimensions requires is known only with its inputs.
        is_late = case.is_dynamic or isinstance(error, OutOfMemory)
        return Outcome(Verdict.REFUSED, quote_error(error)) if is_late else outcome_from_error(error)
    except NnrtError as error:
        return outcome_from_error(error)
    return compare_outputs(case, run, outputs)


def _run_invalid(run: Run, prepared: Prepared) -> Outcome:
    try:
        prepared.run(run.inputs)
    except UnavailableDevice as error:
        return outcome_from_error(error)
    except OutOfMemory as error:
        return Outcome(Verdict.WRONG, f"{quote_error(error)}: the inputs are wrong, memory is left", code=error.code)
    except NnrtError:
        return Outcome(Verdict.RIGHT)
    return Outcome(Verdict.WRONG, "a run that has to end with an error gives an answer")


def _run_again(case: Case, prepared: Prepared) -> list[Outcome]:
    """Repeat the first run after one with other inputs: its answer must not depend on earlier runs."""
    first = case.runs[0]
    if len(case.runs) == 1:
        with suppress(NnrtError):
            prepared.run([_reverse(each) for each in first.inputs])
    return [_add_context("after another run", _run_once(case, first, prepared))]


def _repeat_rows(case: Case) -> Iterator[Run]:
    """Yield the first run with its rows repeated, if each row's answer is independent of the other rows."""
    run = case.runs[0]
    if not case.is_dynamic or run.wanted is None:
        return
    for rows in (_open_inputs(case.graph), {0} & _open_inputs(case.graph)):
        counts = {len(run.inputs[number]) for number in rows}
        if len(counts) != 1 or counts == {0}:
            continue
        places = _rows_of_outputs(case.graph, run, rows)
        if places is None or not set(places) <= {None, Rows()}:
            continue
        (count,) = counts
        elements = sum(y.size for y in (*run.inputs, *run.wanted)) // count
        for wanted in (number for number in _ROWS if number == _ROWS[0] or number * elements <= _MOST_ELEMENTS):
            at = np.arange(wanted) % count
            inputs = (x[at] if number in rows else x for number, x in enumerate(run.inputs))
            outputs = (y if place is None else y[at] for place, y in zip(places, run.wanted, strict=True))
            yield Run(tuple(inputs), tuple(outputs))
        return


def _open_inputs(graph: Graph) -> set[int]:
    """Return the inputs whose first dimension is unknown."""
    return {number for number, spec in enumerate(graph.input_specs) if spec.shape[:1] == (UNKNOWN_DIM,)}


def _rows_of_outputs(graph: Graph, run: Run, rows: Collection[int]) -> list[Rows | None] | None:
    """Return the position of the rows in each output, or None if an output mixes rows.

    Only the inputs numbered `rows` have rows; all other inputs count as constants.
    """
    same = {number: x for number, x in enumerate(run.inputs) if number not in rows}
    tensors, constants = list(graph.tensors), dict(graph.constants)
    for number, x in same.items():
        tensors[graph.inputs[number]] = tensors[graph.inputs[number]].with_shape(x.shape)
        constants[graph.inputs[number]] = Constant.of(x)
    inputs = tuple(tensor for number, tensor in enumerate(graph.inputs) if number in rows)
    try:
        forms = forms_of(replace(graph, tensors=tuple(tensors), constants=constants, inputs=inputs))
    except NnrtError:
        return None
    made = [forms[tensor] for tensor in graph.outputs]
    return None if any(form.counts_rows for form in made) else [form.rows for form in made]


def _run_concurrently(case: Case, prepared: Prepared) -> list[Outcome]:
    """Make the first run eight times concurrently: runs must share no workspace and no state."""
    with ThreadPoolExecutor(_CONCURRENT_RUNS, thread_name_prefix="nnrt-conformance") as threads:
        made = [threads.submit(_run_once, case, case.runs[0], prepared) for _ in range(_CONCURRENT_RUNS)]
        return [_add_context("beside other runs", each.result()) for each in made]


def _run_restored(case: Case, connection: Connection, prepared: Prepared, config: ModelConfig) -> list[Outcome]:
    """Make the first run on the model after exporting and restoring it."""
    try:
        restored = connection.restore(prepared.export(), config)
    except (Unsupported, OutOfMemory):
        return []
    except NnrtError as error:
        return [_add_context("when it is exported and restored", outcome_from_error(error))]
    with restored:
        return [_add_context("when it is exported and restored", _run_once(case, case.runs[0], restored))]


def _add_context(when: str, outcome: Outcome) -> Outcome:
    """Return the outcome; a fault's reason gets the prefix `when`."""
    return replace(outcome, reason=f"{when}: {outcome.reason}") if outcome.verdict.is_fault else outcome


def _reverse(array: AnyArray) -> AnyArray:
    """Return the array with its elements in reverse, so that indices stay valid."""
    return np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)


def compare_outputs(case: Case, run: Run, outputs: Sequence[AnyArray]) -> Outcome:
    """Compare the outputs of a run with the answers."""
    assert run.wanted is not None
    worst = Outcome(Verdict.RIGHT, error=0.0)
    for number, distance in enumerate(case.distances(outputs, run)):
        if distance.reason:
            where = _describe_difference(outputs[number], run.wanted[number]) if len(outputs) == len(run.wanted) else ""
            return Outcome(Verdict.WRONG, distance.reason + where, distance.error, distance.allowed)
        if distance.error >= (worst.error or 0.0):
            worst = Outcome(Verdict.RIGHT, error=distance.error, tolerance=distance.allowed)
    return worst


def _describe_difference(output: AnyArray, wanted: AnyArray) -> str:
    """Return the position of the largest difference and both elements there, as text."""
    if output.shape != wanted.shape or not output.size:
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(output.astype(np.float64) - wanted.astype(np.float64))
        same = (output == wanted) | ((output != output) & (wanted != wanted))
    apart = np.where(same, -1.0, np.where(np.isnan(apart), np.inf, apart))
    at = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return f"; at {[int(index) for index in at]} it is {output[at]} in place of {wanted[at]}"


def _worst_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a case with several: the first fault, else the first refusal, else the largest error."""
    for is_such in (lambda each: each.verdict.is_fault, lambda each: each.verdict is Verdict.REFUSED):
        if found := next(filter(is_such, outcomes), None):
            return found
    return max(outcomes, key=lambda each: each.error or 0.0)
