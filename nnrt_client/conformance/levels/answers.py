"""The levels that are data: a device's answers beside those of other people's code."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Run
from nnrt_client.conformance.outcome import Outcome, Verdict, failure, said
from nnrt_client.conformance.target import Broken, Connection, Prepared, Target, first_reason
from nnrt_hdi.backend import Capabilities, ModelConfig
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import (
    InvalidParameter,
    NnrtError,
    OperationForbidden,
    OutOfMemory,
    UnavailableDevice,
    Unsupported,
)
from nnrt_hdi.graph import Graph

AnyArray = NDArray[Any]

_REFUSALS = (InvalidParameter, OperationForbidden, OutOfMemory, Unsupported)


@dataclass(frozen=True, slots=True)
class Answers:
    """The trial of a case: prepared in a session of its own, and run as often as the case says, and then once more."""

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

    def tried(self, target: Target) -> Outcome:
        """Prepare and run. Raises UnavailableDevice and ConnectionFailed where the daemon is gone."""
        with target.session() as connection:
            try:
                return tried(self.case, connection)
            except Broken as broken:
                return Outcome(Verdict.WRONG, str(broken))


def tried(case: Case, connection: Connection) -> Outcome:
    """Prepare a case and run it."""
    if lacking := _lacking(case, connection.session.info.capabilities):
        return Outcome(Verdict.REFUSED, f"the device has no {lacking}", is_unclaimed=True)
    config = ModelConfig(enable_float16=case.enable_float16)
    refusals = [support for support in connection.supported(case.graph) if not support.supported]
    if refusals:
        return _refused(case, connection, config, first_reason(refusals))
    try:
        prepared = connection.prepare(case.graph, config)
    except _REFUSALS as error:
        return Outcome(Verdict.FAILED, f"every node is said to be supported, and the model is refused: {said(error)}")
    with prepared:
        if misfit := _misfit(case.graph, prepared):
            return Outcome(Verdict.WRONG, misfit)
        return _worst([_answered(case, run, prepared) for run in case.runs] + _again(case, prepared))


def _lacking(case: Case, capabilities: Capabilities) -> str:
    """The capability that a case needs and the device doesn't claim; empty where there is none."""
    if case.enable_float16 and not capabilities.float16_precision:
        return "float16_precision"
    if any(spec.is_dynamic for spec in case.graph.input_specs) and not capabilities.dynamic_input:
        return "dynamic_input"
    return ""


def _misfit(graph: Graph, prepared: Prepared) -> str:
    """Name what the device forgets of the inputs and outputs; empty where it tells all that the graph says."""
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


def _refused(case: Case, connection: Connection, config: ModelConfig, reason: str) -> Outcome:
    """The outcome of a case of which a node is not supported: a refusal, if `prepare` sees it in the same way."""
    with suppress(*_REFUSALS):
        connection.prepare(case.graph, config).close()
        return Outcome(Verdict.WRONG, f"a node is said not to be supported ({reason}), and the model is taken")
    return Outcome(Verdict.REFUSED, reason)


def _answered(case: Case, run: Run, prepared: Prepared) -> Outcome:
    if run.wanted is None:
        return _refused_run(run, prepared)
    try:
        outputs = prepared.run(run.inputs)
    except (Unsupported, OutOfMemory) as error:
        # Only with its inputs is it known what a model with unknown dimensions asks for.
        is_late = case.is_dynamic or isinstance(error, OutOfMemory)
        return Outcome(Verdict.REFUSED, said(error)) if is_late else failure(error)
    except NnrtError as error:
        return failure(error)
    return compared(case, run, outputs)


def _refused_run(run: Run, prepared: Prepared) -> Outcome:
    try:
        prepared.run(run.inputs)
    except UnavailableDevice as error:
        return failure(error)
    except NnrtError:
        return Outcome(Verdict.RIGHT)
    return Outcome(Verdict.WRONG, "a run that has to end with an error gives an answer")


def _again(case: Case, prepared: Prepared) -> list[Outcome]:
    """The first run once more, after one with other inputs: an answer depends on nothing that was before."""
    first = case.runs[0]
    if len(case.runs) == 1:
        with suppress(NnrtError):
            prepared.run([_turned_round(each) for each in first.inputs])
    again = _answered(case, first, prepared)
    if again.verdict.is_fault:
        return [Outcome(again.verdict, f"after another run: {again.reason}", again.error, again.tolerance)]
    return [again]


def _turned_round(array: AnyArray) -> AnyArray:
    """The same elements from the last to the first: indices stay within what they are indices of."""
    return np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape)


def compared(case: Case, run: Run, outputs: Sequence[AnyArray]) -> Outcome:
    """Compare the outputs of a run with the answers."""
    assert run.wanted is not None
    worst = Outcome(Verdict.RIGHT, error=0.0)
    for number, distance in enumerate(case.distances(outputs, run)):
        if distance.reason:
            where = _where(outputs[number], run.wanted[number]) if len(outputs) == len(run.wanted) else ""
            return Outcome(Verdict.WRONG, distance.reason + where, distance.error, distance.allowed)
        if distance.error >= (worst.error or 0.0):
            worst = Outcome(Verdict.RIGHT, error=distance.error, tolerance=distance.allowed)
    return worst


def _where(output: AnyArray, wanted: AnyArray) -> str:
    """The place of the largest difference, and both elements there."""
    if output.shape != wanted.shape or not output.size:
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(output.astype(np.float64) - wanted.astype(np.float64))
        same = (output == wanted) | ((output != output) & (wanted != wanted))
    apart = np.where(same, -1.0, np.where(np.isnan(apart), np.inf, apart))
    at = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return f"; at {[int(index) for index in at]} it is {output[at]} in place of {wanted[at]}"


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a case that has several: the first fault, else the first refusal, else the largest error."""
    for is_such in (lambda each: each.verdict.is_fault, lambda each: each.verdict is Verdict.REFUSED):
        if found := next(filter(is_such, outcomes), None):
            return found
    return max(outcomes, key=lambda each: each.error or 0.0)
