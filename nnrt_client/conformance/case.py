"""Case of the kit: a model, the inputs of its runs, and the answers of independent code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from nnrt_client.conformance.answers import Answer, Outputs, inputs_digest, load_answer
from nnrt_client.conformance.tolerance import SUMS_IN_ANOTHER_ORDER, Tolerance, output_error
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph

AnyArray = NDArray[Any]
Inputs = Sequence[AnyArray]

BY_HAND = "worked out by hand"


class Level(Enum):
    """Level of the kit. Some levels consist of cases, which are data; the others consist of checks, which are code."""

    CONTRACT = "contract"
    OPERATORS = "operators"
    VALUES = "values"
    QUANTIZED = "quantized"
    FLOAT16 = "float16"
    GRAPHS = "graphs"
    CONCURRENCY = "concurrency"
    SEQUENCES = "sequences"
    CACHES = "caches"
    DEATH = "death"


class Mark(Enum):
    """Property of a case."""

    # `--quick` runs it.
    QUICK = "quick"
    # Some dimensions are known only at run time.
    DYNAMIC = "dynamic"
    # A backend without checks crashes, by a signal or by exhausting memory.
    MAY_END_PROCESS = "may end process"


@dataclass(frozen=True, eq=False)
class Run:
    """Run of a case: its inputs and the wanted outputs.

    `wanted` is None if the run must end with an error of NNRt, after which the device, the session and the prepared
    model must keep working.
    """

    inputs: tuple[AnyArray, ...]
    wanted: tuple[AnyArray, ...] | None


@dataclass(frozen=True, slots=True)
class Distance:
    """Error of an output relative to the wanted one. `reason` is empty if the tolerance allows the error.

    `error` has the unit of `allowed`: steps for a quantized output, otherwise relative (see `Tolerance`). It is
    infinite if the shape, the type, or elements that must be equal differ.
    """

    error: float
    allowed: float
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """Model with its runs. Graph, inputs and answers are made on first use.

    The runner prepares `graph` (with `enable_float16`), makes all `runs` on this one prepared model in order, and
    passes their outputs to `distances`. A refusal of the graph lowers the device's coverage but is no fault.

    `name` is unique and begins with the level: "operators/SOFTMAX-3-float32". `data_type` is the type that the case
    tests and under which tables list it: FLOAT16 for FLOAT32 models that allow half precision. `answer` is the name of
    the answers, which all cases with the same inputs share.
    """

    name: str
    level: Level
    family: str
    node_types: tuple[NodeType, ...]
    data_type: DataType
    make: Callable[[], tuple[Graph, Sequence[Inputs]]]
    answer: str
    tolerance: Tolerance = SUMS_IN_ANOTHER_ORDER
    enable_float16: bool = False
    marks: frozenset[Mark] = field(default_factory=frozenset)
    # Outputs of each run, worked out by hand, instead of shipped answers.
    by_hand: tuple[Outputs | None, ...] | None = None

    @property
    def graph(self) -> Graph:
        return self._made[0]

    @property
    def inputs(self) -> Sequence[Inputs]:
        """Inputs of each run."""
        return self._made[1]

    @property
    def is_quick(self) -> bool:
        return Mark.QUICK in self.marks

    @property
    def is_dynamic(self) -> bool:
        return Mark.DYNAMIC in self.marks

    @property
    def oracle(self) -> str:
        """Name of the code that computed the answers."""
        return self._answer.oracle

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Runs in the order in which to make them. Raises InvalidFile if the answers belong to other inputs."""
        self._answer.require_inputs(inputs_digest(self.graph, self.inputs))
        return tuple(Run(tuple(inputs), wanted) for inputs, wanted in zip(self.inputs, self._answer.runs, strict=True))

    def distances(self, actual: Sequence[AnyArray], run: Run) -> list[Distance]:
        """Compare the outputs of a run with the wanted ones."""
        assert run.wanted is not None, "the right answer of this run is an error"
        if len(actual) != len(run.wanted):
            return [Distance(float("inf"), 0.0, f"gives {len(actual)} outputs in place of {len(run.wanted)}")]
        return [self._distance(*output) for output in zip(range(len(actual)), actual, run.wanted, strict=True)]

    def _distance(self, output: int, actual: AnyArray, wanted: AnyArray) -> Distance:
        spec = self.graph.tensors[self.graph.outputs[output]]
        allowed = self.tolerance.allows(spec)
        if (actual.dtype, actual.shape) != (wanted.dtype, wanted.shape):
            given, right = (f"{array.dtype}{list(array.shape)}" for array in (actual, wanted))
            return Distance(float("inf"), allowed, f"output {output} is {given} in place of {right}")
        error = output_error(actual, wanted, spec, signs_of_zeros=self.tolerance.signs_of_zeros)
        if error <= allowed:
            return Distance(error, allowed)
        unit = "steps" if spec.is_quantized else "of its size"
        return Distance(
            error, allowed, f"output {output} is {error:.3g} {unit} from {self.oracle}'s; allowed: {allowed:.3g}"
        )

    @cached_property
    def _made(self) -> tuple[Graph, Sequence[Inputs]]:
        graph, runs = self.make()
        for array in (array for inputs in runs for array in inputs):
            array.flags.writeable = False  # A backend that writes into its inputs can't spoil later runs.
        return graph, runs

    @property
    def _answer(self) -> Answer:
        if self.by_hand is not None:
            return Answer(self.answer, BY_HAND, inputs_digest(self.graph, self.inputs), self.by_hand)
        return load_answer(self.level.value, self.answer)
