"""Every operator, on samples that were right before chance changed them: inference and kernel say the same.

The kernels run in this process, so that many cases fit; `test_agreement` asks a daemon.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from loaded import loaded
from numpy.typing import NDArray
from operators.single_node import Pair, graph_of, infer_all, pairs
from part import examples
from random_values import random_array, random_attribute

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.quantized import QUANTIZED_TYPES
from nnrt_hdi.tensor import NUMPY_DTYPES, UNKNOWN_DIM, QuantParam, TensorSpec

AnyArray = NDArray[Any]

CASES = examples(200)
# Of these so many must have run, or the test has lost its aim.
LEAST_RUN = CASES // 6
MAX_TENSOR_BYTES = 1 << 20
EXTREMES = {"f": (np.nan, np.inf, -np.inf, 1e30), "i": (2**63 - 1, -(2**63)), "u": (2**64 - 1,), "b": (True, False)}


@dataclass(slots=True)
class Case:
    """A node with its operands. All of them have elements, constants and inputs of the run alike."""

    node_type: NodeType
    specs: list[TensorSpec]
    arrays: list[AnyArray]
    is_constant: list[bool]
    attrs: dict[str, Any]
    declared: tuple[TensorSpec, ...] = ()

    @classmethod
    def of(cls, sample: Sample) -> "Case":
        arrays = sample.arrays()
        constant = [sample.is_constant(index) for index in range(len(arrays))]
        return cls(sample.node_type, [spec for spec, _ in pairs(sample, arrays)], arrays, constant, {**sample.attrs})

    @property
    def operands(self) -> list[Pair]:
        values = zip(self.specs, self.arrays, self.is_constant, strict=True)
        return [(spec, array if constant else None) for spec, array, constant in values]

    def set(self, index: int, elements: Any, **changes: Any) -> None:
        self.arrays[index] = array = np.asarray(elements)
        self.specs[index] = replace(self.specs[index], shape=array.shape, **changes)

    def fill(self, rng: Random, index: int, shape: Sequence[int]) -> None:
        self.set(index, random_array(rng, shape, self.specs[index].data_type))


def conversions() -> list[Case]:
    """The operators that convert have no samples: their parameters are part of the node."""
    real = np.arange(-3, 3, dtype="f4").reshape(2, 3)
    quant = tuple(QuantParam(scale, 3) for scale in (0.5, 1.0, 0.0))
    cases = []
    for params, node_type in ((quant[:1], NodeType.QUANT_DTYPE_CAST), (quant, NodeType.QUANT_DTYPE_CAST_V2)):
        attrs = {} if len(params) == 1 else {"axis": 1}
        x, q = TensorSpec(DataType.FLOAT32, (2, 3)), TensorSpec(DataType.INT8, (2, 3), quant=params)
        for source, array, target in ((x, real, q), (q, real.astype("i1"), x), (q, real.astype("i1"), q)):
            types = {"src_t": int(source.data_type), "dst_t": int(target.data_type)}
            cases.append(Case(node_type, [source], [array], [False], {**attrs, **types}, (target,)))
    return cases


def starts() -> Mapping[NodeType, list[Callable[[], Case]]]:
    """Per operator, what makes cases that are right."""
    found: defaultdict[NodeType, list[Callable[[], Case]]] = defaultdict(list)
    for sample in SAMPLES:
        found[sample.node_type].append(lambda sample=sample: Case.of(sample))  # type: ignore[misc]
    for number, case in enumerate(conversions()):
        found[case.node_type].append(lambda number=number: conversions()[number])  # type: ignore[misc]
    return found


STARTS = starts()


@pytest.fixture(scope="module")
def backend() -> Backend:
    return loaded("reference")


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: node_type.name)
def test_inference_and_kernel_agree(backend: Backend, node_type: NodeType) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(CASES):
        rng = Random(f"{node_type.name} {seed}")  # noqa: S311
        case = rng.choice(STARTS[node_type])()
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            rng.choice(CHANGES)(rng, case)
        try:
            outcomes[outcome(backend, rng, case)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {case}") from error
    assert outcomes["ran"] >= LEAST_RUN, outcomes


def outcome(backend: Backend, rng: Random, case: Case) -> str:
    """Prepare and run; whether somebody refused, on purpose, and who."""
    try:
        declared = declaration(rng, case)
        if rng.random() < 0.3:
            forget_dimensions(rng, case)
        graph = graph_of(case.node_type, case.operands, case.attrs, *declared)
        model = backend.prepare(graph, ModelConfig(max_tensor_bytes=MAX_TENSOR_BYTES), lambda _: None)
    except NnrtError:
        return "refused"
    inputs = [array for array, constant in zip(case.arrays, case.is_constant, strict=True) if not constant]
    try:
        outputs = model.run(inputs, Cancellation())
    except NnrtError as error:
        assert "the kernel made" not in error.message
        return "run refused"
    for spec, output in zip(model.outputs, outputs, strict=True):
        assert output.dtype == spec.numpy_dtype
        assert spec.accepts(output.shape)
    return "ran"


def declaration(rng: Random, case: Case) -> tuple[TensorSpec, ...]:
    """Say of the outputs nothing or, where operands are quantized, often how they are."""
    if case.declared or not any(spec.is_quantized for spec in case.specs) or rng.random() < 0.2:
        return case.declared
    real = [
        (replace(spec, data_type=DataType.FLOAT32, quant=()), None) if spec.is_quantized else (spec, value)
        for spec, value in case.operands
    ]
    return tuple(
        replace(spec, data_type=rng.choice([*QUANTIZED_TYPES]), quant=random_quant(rng, spec.shape))
        if spec.data_type is DataType.FLOAT32
        else spec
        for spec in infer_all(case.node_type, real, case.attrs)
    )


def forget_dimensions(rng: Random, case: Case) -> None:
    """Leave dimensions of inputs open until the run."""
    for index, spec in enumerate(case.specs):
        if not case.is_constant[index]:
            case.specs[index] = spec.with_shape([UNKNOWN_DIM if rng.random() < 0.5 else dim for dim in spec.shape])


def random_quant(rng: Random, shape: Sequence[int]) -> tuple[QuantParam, ...]:
    count = rng.choice([1, 1, *shape[-1:], *shape[:1]])
    return tuple(QuantParam(rng.choice([0.05, 0.5, 1e30, 0.0]), rng.choice([0, 3, 100])) for _ in range(count))


# ---- what chance does to a case


def other_length(rng: Random, case: Case) -> None:
    """A length becomes another one, in one dimension and often also where it is found elsewhere."""
    places = [(index, axis) for index, spec in enumerate(case.specs) for axis in range(spec.rank)]
    if not places:
        return
    chosen = rng.choice(places)
    old, new = case.specs[chosen[0]].shape[chosen[1]], rng.choice([0, 0, 1, 2, 3])
    for index, spec in enumerate(case.specs):
        if index != chosen[0] and case.is_constant[index]:
            continue
        shape = [
            new if (index, axis) == chosen or (dim == old and rng.random() < 0.6) else dim
            for axis, dim in enumerate(spec.shape)
        ]
        if spec.shape != tuple(shape):
            case.fill(rng, index, shape)


def other_rank(rng: Random, case: Case) -> None:
    index = rng.randrange(len(case.specs))
    shape = list(case.specs[index].shape)
    at = rng.randint(0, len(shape))
    shape[at:] = shape[at + 1 :] if rng.random() < 0.5 else [rng.choice([0, 1, 2]), *shape[at:]]
    case.fill(rng, index, shape)


def other_values(rng: Random, case: Case) -> None:
    index = rng.randrange(len(case.specs))
    case.fill(rng, index, case.specs[index].shape)


def extreme_value(rng: Random, case: Case) -> None:
    index = rng.randrange(len(case.specs))
    array = case.arrays[index].copy()
    if array.size:
        value = rng.choice(EXTREMES[array.dtype.kind])
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            value = min(max(value, limits.min), limits.max)
        with np.errstate(over="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = value
    case.set(index, array)


def other_type(rng: Random, case: Case) -> None:
    """All operands of one data type get another."""
    old, new = rng.choice(case.specs).data_type, rng.choice([*NUMPY_DTYPES])
    lowest = 0 if NUMPY_DTYPES[new].kind in "ub" else -100
    for index, spec in enumerate(case.specs):
        if spec.data_type is old:
            values = np.nan_to_num(case.arrays[index].astype("f8")).clip(lowest, 100)
            case.set(index, values.astype(NUMPY_DTYPES[new]), data_type=new)


def other_attribute(rng: Random, case: Case) -> None:
    rules = OPERATORS[case.node_type].attributes
    if not rules:
        return
    name = rng.choice([*rules])
    if rng.random() < 0.2:
        case.attrs.pop(name, None)
    else:
        case.attrs[name] = random_attribute(rng, rules[name])


def other_layout(rng: Random, case: Case) -> None:
    index = rng.randrange(len(case.specs))
    case.specs[index] = replace(case.specs[index], format=rng.choice([*Format]))


def other_sources(rng: Random, case: Case) -> None:
    """Constants become inputs of the run, inputs constants."""
    case.is_constant = [rng.random() < 0.5 for _ in case.specs]


def quantized(rng: Random, case: Case) -> None:
    data_type = rng.choice([*QUANTIZED_TYPES])
    limits = QUANTIZED_TYPES[data_type]
    for index, spec in enumerate(case.specs):
        if spec.data_type is DataType.FLOAT32:
            elements = np.nan_to_num(case.arrays[index]).clip(limits[0], limits[-1]).astype(NUMPY_DTYPES[data_type])
            case.set(index, elements, data_type=data_type, quant=random_quant(rng, spec.shape))


CHANGES: list[Callable[[Random, Case], None]] = [
    other_length,
    other_rank,
    other_values,
    extreme_value,
    other_type,
    other_attribute,
    other_attribute,
    other_layout,
    other_sources,
    quantized,
]
