"""A case of the kit: a model, the inputs it runs with, and the answers of other people's code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from nnrt_client.conformance.answers import Answer, Outputs, answer_of, inputs_digest
from nnrt_client.conformance.tolerance import SUMS_IN_ANOTHER_ORDER, Tolerance, error_of
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph

AnyArray = NDArray[Any]
Inputs = Sequence[AnyArray]

BY_HAND = "worked out by hand"


class Level(Enum):
    """A part of the kit. Those of cases are data; the others are code of their own."""

    CONTRACT = "contract"
    OPERATORS = "operators"
    VALUES = "values"
    QUANTIZED = "quantized"
    FLOAT16 = "float16"
    GRAPHS = "graphs"
    CONCURRENCY = "concurrency"
    CACHES = "caches"
    DEATH = "death"


class Mark(Enum):
    """What is particular about a case."""

    # It is among those that `--quick` runs.
    QUICK = "quick"
    # Dimensions are known only when it runs.
    DYNAMIC = "dynamic"
    # Careless code ends the process, by a signal or by all memory.
    MAY_END_PROCESS = "may end process"


@dataclass(frozen=True, eq=False)
class Run:
    """A run of a case: what it takes, and what it has to give. `wanted` of None: an error in place of an answer.

    The error is a typed one of NNRt's; the device, its session and the prepared model go on.
    """

    inputs: tuple[AnyArray, ...]
    wanted: tuple[AnyArray, ...] | None


@dataclass(frozen=True, slots=True)
class Distance:
    """How far an output is from the one wanted. `reason` is empty where that is allowed.

    `error` is in the unit of `allowed`: steps of a quantized output, else relative (see `Tolerance`); infinite where a
    shape, a type, or elements that must be equal are not.
    """

    error: float
    allowed: float
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Case:
    """A model with its runs. Its graph, inputs and answers are made when somebody asks for them.

    The runner prepares `graph` (with `enable_float16`), makes each of `runs` on the one prepared model, in their order,
    and asks `distances` of their outputs. A device that refuses the graph is right, too: it covers less.

    `name` is unique, and begins with the level: "operators/SOFTMAX-3-float32". `data_type` is the one that the case is
    about, which a table has it under: FLOAT16 for models of FLOAT32 that allow it. `answer` is the name of its answers,
    which those with the same inputs share.
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
    # The outputs of each run, where they were worked out by hand and don't ship as data.
    by_hand: tuple[Outputs | None, ...] | None = None

    @property
    def graph(self) -> Graph:
        return self._made[0]

    @property
    def inputs(self) -> Sequence[Inputs]:
        """The inputs of each run."""
        return self._made[1]

    @property
    def is_quick(self) -> bool:
        return Mark.QUICK in self.marks

    @property
    def is_dynamic(self) -> bool:
        return Mark.DYNAMIC in self.marks

    @property
    def oracle(self) -> str:
        """Whose code computed the answers."""
        return self._answer.oracle

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs, in the order in which they are to be made. Raises InvalidFile where answers are of other inputs."""
        self._answer.require_of(inputs_digest(self.graph, self.inputs))
        return tuple(Run(tuple(inputs), wanted) for inputs, wanted in zip(self.inputs, self._answer.runs, strict=True))

    def distances(self, actual: Sequence[AnyArray], run: Run) -> list[Distance]:
        """Compare the outputs of a run with those wanted."""
        assert run.wanted is not None, "there are none where an error is wanted"
        if len(actual) != len(run.wanted):
            return [Distance(float("inf"), 0.0, f"gives {len(actual)} outputs in place of {len(run.wanted)}")]
        return [self._distance(*output) for output in zip(range(len(actual)), actual, run.wanted, strict=True)]

    def _distance(self, output: int, actual: AnyArray, wanted: AnyArray) -> Distance:
        spec = self.graph.tensors[self.graph.outputs[output]]
        allowed = self.tolerance.allows(spec)
        if (actual.dtype, actual.shape) != (wanted.dtype, wanted.shape):
            given, right = (f"{array.dtype}{list(array.shape)}" for array in (actual, wanted))
            return Distance(float("inf"), allowed, f"output {output} is {given} in place of {right}")
        error = error_of(actual, wanted, spec, signs_of_zeros=self.tolerance.signs_of_zeros)
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
            array.flags.writeable = False  # A backend that computes in place spoils no later run.
        return graph, runs

    @property
    def _answer(self) -> Answer:
        if self.by_hand is not None:
            return Answer(self.answer, BY_HAND, inputs_digest(self.graph, self.inputs), self.by_hand)
        return answer_of(self.level.value, self.answer)
