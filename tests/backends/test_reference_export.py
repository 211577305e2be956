"""Exported programs of the reference backend: they compute the same to the bit, and nothing else is taken for one."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loaded import loaded
from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.program import KIND
from numpy.typing import NDArray
from operators.single_node import graph_of

from nnrt_client.conformance import Level, cases
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, OutOfMemory
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import QuantParam, TensorSpec

AnyArray = NDArray[Any]
Parts = Sequence[Part | bytes]
BACKEND = loaded("reference")


def prepare(graph: Graph, **config: Any) -> PreparedModel:
    return BACKEND.prepare(graph, ModelConfig(**config), lambda _: None)


def restore(parts: Parts, **config: Any) -> PreparedModel:
    return BACKEND.restore([part if isinstance(part, Part) else Part.of(part) for part in parts], ModelConfig(**config))


def f32(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.FLOAT32, shape)


def weighted(*weights: AnyArray) -> Graph:
    """x + w for each of the weights."""
    count = len(weights)
    specs = tuple(f32(*weight.shape) for weight in weights)
    nodes = tuple(Node(NodeType.ADD_FUSION, (0, 1 + at), (1 + count + at,), {}, f"add{at}") for at in range(count))
    constants = {1 + at: Constant.of(weight) for at, weight in enumerate(weights)}
    return Graph((f32(1), *specs, *specs), nodes, (0,), tuple(range(1 + count, 1 + 2 * count)), constants, "weighted")


def weights(count: int, elements: int) -> list[AnyArray]:
    return [np.full(elements, number, np.float32) for number in range(count)]


# ---- the same results ------------------------------------------------------------------------------------------------


def require_restored(graph: Graph, inputs: Sequence[AnyArray], **config: Any) -> None:
    prepared = prepare(graph, **config)
    parts = prepared.export()
    restored = restore(parts)  # What it was compiled with is known.
    assert (restored.inputs, restored.outputs) == (prepared.inputs, prepared.outputs)
    assert restored.input_ranges() == prepared.input_ranges()
    wanted = prepared.run(inputs, Cancellation())
    for actual, expected in zip(restored.run(inputs, Cancellation()), wanted, strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tobytes() == expected.tobytes()
    assert restored.export() == parts


@pytest.mark.parametrize("level", [Level.OPERATORS, Level.QUANTIZED, Level.FLOAT16], ids=lambda level: level.value)
@pytest.mark.slow
def test_every_case(level: Level) -> None:
    for case in cases(level):
        if case.is_quick:
            require_restored(case.graph, case.inputs[0], enable_float16=case.enable_float16)


def test_every_conversion() -> None:
    """Those that convert, which no sample has, and with them every node there is."""
    converting = {kind for kind, operator in OPERATORS.items() if operator.sees_quantization}
    for kind in converting:
        x, y = f32(4), replace(f32(4), data_type=DataType.INT8, quant=(QuantParam(0.5, 3),))
        attrs = {"src_t": int(x.data_type), "dst_t": int(y.data_type)}
        require_restored(graph_of(kind, [(x, None)], attrs, y), [np.arange(4, dtype=np.float32)])
    assert converting | {sample.node_type for sample in SAMPLES} == set(KERNELS)


# ---- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constants", "parts"),
    [
        ([np.zeros(0, np.float32)], 2),
        (weights(3, 5), 2),
        (weights(2, 1 << 18), 3),
        ([*weights(2, 1 << 18), *weights(2, 7)], 4),
        (weights(70, 1 << 18), 66),
        ([np.ones(5, np.float32)] * 3, 2),
    ],
    ids=["empty", "small", "large", "both", "many", "the same"],
)
def test_number_of_parts(constants: list[AnyArray], parts: int) -> None:
    graph = weighted(*constants)
    assert len(prepare(graph).export()) == parts
    require_restored(graph, [np.ones(1, np.float32)])


def test_large_constants_are_not_copied() -> None:
    """Neither on the way out nor on the way in."""
    (weight,) = weights(1, 1 << 18)
    _, part = prepare(weighted(weight)).export()
    assert np.shares_memory(np.asarray(part.data), weight)
    restored = restore([prepare(weighted(weight)).export()[0], part])
    assert np.shares_memory(np.asarray(restored.export()[1].data), weight)


# ---- what is refused -------------------------------------------------------------------------------------------------


def exported() -> list[bytes]:
    return [bytes(part.data) for part in prepare(weighted(*weights(2, 1 << 18), *weights(2, 7))).export()]


def wrong_parts() -> Iterator[Parts]:
    header, first, second, rest = exported()
    yield []
    yield [header]
    yield [header, first, second]
    yield [header, first, second, rest, b""]
    yield [header, second, first, rest]
    yield [first, header, second, rest]
    yield [rest, first, second, header]
    yield [header, first, first, rest]
    yield [header, first[:-1], second, rest]
    yield [header, first + b"\0", second, rest]
    yield [header, first, second, rest[:-1]]
    yield [header, first, second, rest + b"\0"]
    yield [header, first, second, b""]
    yield [b"", first, second, rest]
    yield [header + b"\0", first, second, rest]


def test_wrong_parts() -> None:
    restore(exported())
    for parts in wrong_parts():
        with pytest.raises(InvalidFile):
            restore(parts)


@pytest.mark.slow
def test_damaged_parts() -> None:
    """Every bit of the parts that are short, also between the constants, and some of the others."""
    parts = exported()
    positions = [(0, at) for at in range(0, len(parts[0]), 5)] + [(3, at) for at in range(len(parts[3]))]
    for part, at in [*positions, (1, 0), (1, 999_999), (2, 5)]:
        damaged = bytearray(parts[part])
        damaged[at] ^= 1 << at % 8
        with pytest.raises(InvalidFile):
            restore([*parts[:part], bytes(damaged), *parts[part + 1 :]])


Change = Callable[[Any], object]


def rewritten(change: Change, constants: int = 2) -> Parts:
    """Parts whose first says something else, with digests that are right."""
    header, *rest = (bytes(part.data) for part in prepare(weighted(*weights(constants, 7))).export())
    about, _ = unpacked(KIND, header)
    about = json.loads(json.dumps(about))
    change(about)
    return [b"".join(packed(KIND, about, [])), *rest]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda about: about.clear(), "does not say whether"),
        (lambda about: about.update(float16=1), "does not say whether"),
        (lambda about: about.pop("graph"), "does not say which constants"),
        (lambda about: about.update(graph=[]), "does not say which constants"),
        (lambda about: about["graph"].update(constants=[[1]]), "does not say which constants"),
        (lambda about: about["graph"].update(constants=[[1, "zz", 5]]), "does not say which constants"),
        (lambda about: about["graph"].update(constants=[[1, "00", -5]]), "does not say how long"),
        (lambda about: about["graph"].update(constants=[[1, "00", 1.5]]), "does not say how long"),
        (lambda about: about["graph"].update(constants=[[1, "00", 10**300]]), "is not what was exported"),
        (lambda about: about["graph"].update(constants=[[1, "00", 28]]), "is not what was exported"),
        (lambda about: about["graph"]["constants"].pop(), "has 128 bytes"),
        (lambda about: about["graph"].update(nodes=None), "it holds no graph"),
        (lambda about: about["graph"]["nodes"][0].update(type="NONE"), "NONE"),
        (lambda about: about["graph"]["nodes"][0].update(attrs={"x": 1}), "it has no attribute 'x'"),
        (lambda about: about["graph"]["nodes"][0].update(inputs=[0]), "add0"),
        # Inference is done again: a result that is not as large as its kernel makes it is no program of ours.
        (lambda about: about["graph"]["tensors"][4].update(shape=[8]), r"is declared \[8\] but is \[7\]"),
        (
            lambda about: about["graph"]["tensors"][4].update(shape=[-1]),
            r"said to be FLOAT32\[\?\], but are FLOAT32\[7\]",
        ),
        (lambda about: about["graph"]["tensors"][4].update(data_type="FLOAT64"), "is declared FLOAT64 but is FLOAT32"),
        (lambda about: about["graph"]["tensors"][4].update(data_type="UNKNOWN"), "said to be UNKNOWN"),
        (lambda about: about["graph"]["tensors"][0].update(shape=[3]), "do not broadcast"),
    ],
)
def test_programs_nobody_exported(change: Change, said: str) -> None:
    with pytest.raises(InvalidFile, match=said):
        restore(rewritten(change))


def test_a_node_without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = exported()
    monkeypatch.delitem(KERNELS, NodeType.ADD_FUSION)
    with pytest.raises(InvalidFile, match="has no ADD_FUSION kernel"):
        restore(parts)


def test_the_limit_is_that_of_the_daemon() -> None:
    """A tensor that is too large is refused before there is memory for it, whatever the file says."""
    tall, wide = f32(10**6, 1), f32(1, 10**6)
    small = Graph(
        (f32(10, 1), f32(1, 10), f32(10, 10)), (Node(NodeType.ADD_FUSION, (0, 1), (2,), name="outer"),), (0, 1), (2,)
    )
    (header,) = prepare(small).export()
    about, _ = unpacked(KIND, header.data)
    for tensor, spec in zip(about["graph"]["tensors"], (tall, wide, f32(10**6, 10**6)), strict=True):
        tensor["shape"] = list(spec.shape)
    with pytest.raises(OutOfMemory, match=r"outer.* needs 4000000000000 bytes"):
        restore([b"".join(packed(KIND, about, []))])
    with pytest.raises(OutOfMemory, match="at most 399 are allowed"):
        restore([header], max_tensor_bytes=399)
    restore([header], max_tensor_bytes=400)


def test_unknown_extension() -> None:
    with pytest.raises(InvalidParameter, match="no extension 'turbo'"):
        restore(exported(), extensions={"turbo": b"1"})


def test_a_relu_of_another_kind_is_another_program() -> None:
    """Attributes are part of what is restored."""
    for kind, wanted in ((ActivationType.RELU, [0, 9]), (ActivationType.RELU6, [0, 6])):
        node = Node(NodeType.ACTIVATION, (0,), (1,), {"activation_type": kind})
        parts = prepare(Graph((f32(2), f32(2)), (node,), (0,), (1,))).export()
        (output,) = restore(parts).run([np.array([-9, 9], np.float32)], Cancellation())
        assert output.tolist() == wanted
