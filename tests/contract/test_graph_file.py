"""Graphs as bytes: what comes back is what went in, and only what went in; digests tell graphs apart, on both ends."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.single_node import graph_of, pairs
from part import examples

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.model.operations.record import normalize_attrs
from nnrt_hdi import wire
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, QuantType
from nnrt_hdi.errors import InvalidFile, InvalidParameter
from nnrt_hdi.files.container import packed, unpacked
from nnrt_hdi.files.graph_file import KIND, described_graph, graph_digest, packed_graph, read_graph, unpacked_graph
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import QuantParam, TensorSpec
from nnrt_hdi.v2 import model_pb2

RELU = {"activation_type": ActivationType.RELU}


def graph_from(sample: Sample) -> Graph:
    """Its attributes are those that a client's model would have."""
    return graph_of(sample.node_type, pairs(sample, sample.arrays()), normalize_attrs(sample.node_type, sample.attrs))


def file_of(graph: Graph) -> bytes:
    return b"".join(packed_graph(graph))


def small_graph(
    name: str = "small", attrs: Any = None, quant: Sequence[QuantParam] = (), weights: Sequence[float] = (1, 2)
) -> Graph:
    """Two nodes on a constant that is there twice, once as an operand and once as an output."""
    x = TensorSpec(DataType.FLOAT32, (-1, 2), Format.NONE, tuple(quant), "x")
    w = TensorSpec(DataType.FLOAT32, (2,), name="w")
    nodes = (
        Node(NodeType.ADD_FUSION, (0, 1), (2,), RELU if attrs is None else attrs, "add"),
        Node(NodeType.SOFTMAX, (2,), (3,), {"axis": (-1,)}, "softmax", QuantType.ALL),
    )
    constant = Constant.of(np.array(weights, np.float32))
    return Graph((x, w, x, x, w), nodes, (0,), (3, 4), {1: constant, 4: constant}, name)


def require_equal(actual: Graph, wanted: Graph) -> None:
    for name in ("tensors", "nodes", "inputs", "outputs", "name"):
        assert getattr(actual, name) == getattr(wanted, name)
    assert actual.constants.keys() == wanted.constants.keys()
    for index, constant in wanted.constants.items():
        given = actual.constants[index]
        assert (given.sha256, given.size_bytes) == (constant.sha256, constant.size_bytes)
        assert given.data is not None
        assert constant.data is not None
        assert given.data.dtype == constant.data.dtype
        np.testing.assert_array_equal(given.data, constant.data)


# ---- there and back --------------------------------------------------------------------------------------------------


def test_every_sample() -> None:
    for sample in SAMPLES:
        graph = graph_from(sample)
        again = unpacked_graph(file_of(graph))
        require_equal(again, graph)
        assert graph_digest(again) == graph_digest(graph)


def merged(samples: Sequence[Sample], name: str) -> Graph:
    """One graph of the nodes of several."""
    tensors: list[TensorSpec] = []
    nodes: list[Node] = []
    ends: tuple[list[int], list[int]] = [], []
    constants: dict[int, Constant] = {}
    for number, sample in enumerate(samples):
        part, start = graph_from(sample), len(tensors)
        tensors += (replace(spec, name=f"{name}:{number}") for spec in part.tensors)
        (node,) = part.nodes
        moved = [tuple(index + start for index in indices) for indices in (node.inputs, node.outputs)]
        nodes.append(replace(node, inputs=moved[0], outputs=moved[1], name=name * number))
        ends[0].extend(index + start for index in part.inputs)
        ends[1].extend(index + start for index in part.outputs)
        constants |= {index + start: constant for index, constant in part.constants.items()}
    return Graph(tuple(tensors), tuple(nodes), tuple(ends[0]), tuple(ends[1]), constants, name)


# What UTF-8 can spell: no surrogates.
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=6), NAMES)
def test_any_graph(samples: list[Sample], name: str) -> None:
    graph = merged(samples, name)
    require_equal(unpacked_graph(file_of(graph)), graph)
    message = wire.model_message(graph).SerializeToString()
    assert graph_digest(wire.graph(model_pb2.Model.FromString(message))) == graph_digest(graph)


def test_constants_are_read_only_views() -> None:
    data = bytearray(file_of(small_graph()))
    graph = unpacked_graph(data)
    constant = graph.constants[1].data
    assert constant is not None
    with pytest.raises(ValueError, match="read-only"):
        constant[0] = 5
    data[-8:] = np.array([8, 9], np.float32).tobytes()
    assert constant.tolist() == [8, 9]
    assert np.shares_memory(constant, np.asarray(graph.constants[4].data)), "it is in the file once"


def test_a_graph_without_its_data() -> None:
    graph = small_graph()
    absent = {index: replace(constant, data=None) for index, constant in graph.constants.items()}
    with pytest.raises(InvalidParameter, match="tensor 1 'w': its data is not here"):
        packed_graph(replace(graph, constants=absent))
    assert graph_digest(replace(graph, constants=absent)) == graph_digest(graph)


# ---- damage ----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_and_length_of_a_small_one() -> None:
    whole = file_of(small_graph())
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidFile):
            unpacked_graph(damaged)
    for length in range(len(whole)):
        with pytest.raises(InvalidFile):
            unpacked_graph(whole[:length])


def test_random_bits_of_a_large_one() -> None:
    whole = bytearray(file_of(merged(SAMPLES[::100], "large")))
    at = random.Random(3)  # noqa: S311
    for _ in range(examples(3000)):
        byte, bit = at.randrange(len(whole)), 1 << at.randrange(8)
        whole[byte] ^= bit
        with pytest.raises(InvalidFile):
            unpacked_graph(whole)
        whole[byte] ^= bit
    unpacked_graph(whole)


# ---- hostile, with digests that are right ----------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def put(value: Any, *path: str | int) -> Change:
    """Another value in some place of the manifest."""

    def change(about: Any) -> None:
        for step in path[:-1]:
            about = about[step]
        about[path[-1]] = value

    return change


JUNK: Sequence[Any] = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    10**400,
    2**63,
    "text",
    [],
    [[]],
    [None],
    {},
    {"a": 1},
    "\ud800",
)
PLACES = [
    *((key,) for key in ("name", "tensors", "nodes", "inputs", "outputs", "constants")),
    *(("tensors", 0, key) for key in ("data_type", "shape", "format", "quant", "name")),
    ("tensors", 0),
    ("tensors", 0, "shape", 0),
    ("nodes", 0),
    *(("nodes", 0, key) for key in ("type", "inputs", "outputs", "attrs", "name", "quant_type")),
    ("nodes", 0, "attrs", "activation_type"),
    ("nodes", 1, "attrs"),
    ("nodes", 1, "attrs", "axis"),
    ("nodes", 1, "attrs", "axis", 0),
    ("nodes", 0, "inputs", 0),
    ("inputs", 0),
    ("constants", 0),
    *(("constants", 0, position) for position in range(3)),
]


def changed_file(change: Change) -> bytes:
    about, parts = unpacked(KIND, file_of(small_graph(quant=[QuantParam(0.5, 3)])))
    about = copy.deepcopy(about)
    change(about)
    return b"".join(packed(KIND, about, parts))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_junk_anywhere(place: tuple[str | int, ...]) -> None:
    """A file that is not refused must be a graph, which is as it says."""
    for junk in JUNK:
        hostile = changed_file(put(junk, *place))
        try:
            graph = unpacked_graph(hostile)
        except InvalidFile as refusal:
            assert len(str(refusal)) < 500
            continue
        about, _ = unpacked(KIND, hostile)
        assert json.loads(json.dumps(described_graph(graph))) == about


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("CONV9D", "nodes", 0, "type"), "KeyError 'CONV9D'"),
        (put("NONE", "nodes", 0, "type"), "NONE is not an operator"),
        (put({"colour": 1}, "nodes", 0, "attrs"), "ADD_FUSION 'add': it has no attribute 'colour'"),
        (put(77, "nodes", 0, "attrs", "activation_type"), "activation_type is 77"),
        (put([0] * 1025, "nodes", 1, "attrs", "axis"), "there are 1025 values"),
        (put([2**63], "nodes", 1, "attrs", "axis"), "is no integer in"),
        (put([9], "nodes", 0, "inputs"), "there is no tensor 9"),
        (put([-1], "nodes", 0, "outputs"), "there is no tensor -1"),
        (put([0, 0], "inputs"), "a tensor has one source"),
        (put([[1, "00", 8]], "constants"), "KeyError"),
        (put([], "constants"), "nothing writes it"),
        (put([1, 2], "tensors", 0, "quant", 0), "ValueError"),
        (put([0.5, 2**31, 8], "tensors", 0, "quant", 0), "is no integer in"),
        (put(["0.5", 0, 8], "tensors", 0, "quant", 0), "no number with a point"),
        (put([-2, 2], "tensors", 0, "shape"), "dimension 0 is -2"),
        (put([1] * 33, "tensors", 0, "shape"), "use at most 32 dimensions"),
        (put([2**31 - 1] * 3, "tensors", 1, "shape"), "overflows"),
        (put([3], "tensors", 1, "shape"), "it has 8 bytes for tensor 1"),
        (put([-1], "tensors", 1, "shape"), "it has 8 bytes for tensor 1"),
        (put("UNKNOWN", "tensors", 1, "data_type"), "it has 8 bytes for tensor 1"),
        (lambda about: about["constants"].append([99, about["constants"][0][1], 8]), "for tensor 99 of 5"),
        (lambda about: put(16, "constants", 0, 2)(about), "it has 8 bytes for tensor 1"),
    ],
)
def test_manifests_nobody_would_write(change: Change, said: str) -> None:
    with pytest.raises(InvalidFile) as refusal:
        unpacked_graph(changed_file(change))
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "times", "said"),
    [
        (["nodes"], 40_000, "there are 80000 nodes; use at most 65536"),
        (["tensors"], 60_000, "there are 300000 tensors; use at most 262144"),
        (["inputs"], 1 << 20, "there are 1048583 references to tensors; use at most 1048576"),
        (["tensors", 0, "quant"], 1 << 20, "there are 1048578 quantization parameters; use at most 1048576"),
    ],
)
def test_more_than_any_model_has(path: list[Any], times: int, said: str) -> None:
    about: Any = described_graph(small_graph(quant=[QuantParam(0.5, 3)]))
    *steps, last = path
    inner = about
    for step in steps:
        inner = inner[step]
    inner[last] = inner[last] * times
    with pytest.raises(InvalidFile, match=said):
        read_graph(about, {})


def test_deep_nesting() -> None:
    nested: Any = 1
    for _ in range(500):
        nested = [nested]
    for place in PLACES:
        with pytest.raises(InvalidFile):
            unpacked_graph(changed_file(put(nested, *place)))


def test_parts_without_use() -> None:
    graph, other = small_graph(), small_graph(weights=(3, 4))
    _, (part,) = unpacked(KIND, file_of(graph))
    _, (extra,) = unpacked(KIND, file_of(other))
    about = described_graph(graph)
    unpacked_graph(b"".join(packed(KIND, about, [part])))
    for parts in ([], [extra], [part, extra], [extra, part], [part, part]):
        with pytest.raises(InvalidFile):
            unpacked_graph(b"".join(packed(KIND, about, parts)))


# ---- digests ---------------------------------------------------------------------------------------------------------


def test_equal_graphs_have_equal_digests() -> None:
    assert graph_digest(small_graph()) == graph_digest(small_graph())
    assert graph_digest(small_graph(attrs={"activation_type": 1})) == graph_digest(small_graph()), "ActivationType.RELU"


def test_everything_counts() -> None:
    graph = small_graph()
    add, softmax = graph.nodes
    x = graph.tensors[0]
    renamed = replace(x, name="other")
    variants = [
        graph,
        small_graph(name="other"),
        small_graph(attrs={}),
        small_graph(attrs={"activation_type": ActivationType.RELU6}),
        small_graph(quant=[QuantParam(0.5, 3)]),
        small_graph(quant=[QuantParam(0.5, 4)]),
        small_graph(quant=[QuantParam(0.25, 3)]),
        small_graph(quant=[QuantParam(0.25, 3, 4)]),
        small_graph(weights=(2, 1)),
        small_graph(weights=(-0.0, 0)),
        small_graph(weights=(0, 0)),
        replace(graph, nodes=(replace(add, name="other"), softmax)),
        replace(graph, nodes=(replace(add, inputs=(1, 0)), softmax)),
        replace(graph, nodes=(replace(add, type=NodeType.SUB_FUSION), softmax)),
        replace(graph, nodes=(replace(add, quant_type=QuantType.ALL), softmax)),
        replace(graph, nodes=(softmax, add)),
        replace(graph, outputs=(4, 3)),
        replace(graph, outputs=(3, 4, 2)),
        replace(graph, tensors=(renamed, *graph.tensors[1:])),
        replace(graph, tensors=(x.with_shape((2, 2)), *graph.tensors[1:])),
        replace(graph, tensors=(replace(x, format=Format.NHWC), *graph.tensors[1:])),
        replace(graph, tensors=(replace(x, data_type=DataType.FLOAT16), *graph.tensors[1:])),
    ]
    digests = {graph_digest(variant) for variant in variants}
    assert len(digests) == len(variants)
    for variant in variants:
        require_equal(unpacked_graph(file_of(variant)), variant)


def test_both_ends_of_the_wire_hold_the_same_graph() -> None:
    """The daemon's digest is the client's, for every sample."""
    for sample in SAMPLES:
        graph = graph_from(sample)
        message = wire.model_message(graph).SerializeToString()
        assert graph_digest(wire.graph(model_pb2.Model.FromString(message))) == graph_digest(graph), sample.name


def test_attributes_as_they_are_carried() -> None:
    """Real numbers are those of FLOAT32, also where an integer or a number beyond its range is given."""
    carried = normalize_attrs(NodeType.LAYER_NORM_FUSION, {"epsilon": 1e-5, "begin_norm_axis": 1})
    assert carried == {"epsilon": 9.999999747378752e-06, "begin_norm_axis": 1}
    (huge,) = normalize_attrs(NodeType.LAYER_NORM_FUSION, {"epsilon": 1e39}).values()
    assert huge == float("inf")
    (whole,) = normalize_attrs(NodeType.LAYER_NORM_FUSION, {"epsilon": 1}).values()
    assert type(whole) is float
    assert normalize_attrs(NodeType.SOFTMAX, {"axis": ()}) == {}
    assert normalize_attrs(NodeType.CONSTANT_OF_SHAPE, {"value": (0.1,)}) == {"value": (0.10000000149011612,)}
