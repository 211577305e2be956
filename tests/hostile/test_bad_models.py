"""Models that are wrong in every way a message allows: each is refused with the place and what would be right.

Both calls that take a model see every one of them, and must say the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from daemon_process import DaemonProcess
from model_draft import Draft
from raw_client import RawClient, attacked_daemon, io_tensor

from nnrt_hdi.enums import DataType, Format, NodeType, PaddingMode, PadMode
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.tensor import MAX_DIM
from nnrt_hdi.v2 import device_pb2, prepared_model_pb2

TENSOR_BYTES = 1 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with attacked_daemon("--tensor-bytes", str(TENSOR_BYTES)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[RawClient]:
    with RawClient(daemon.address) as client:
        yield client


@dataclass(frozen=True, slots=True)
class BadModel:
    """A model, the class of its error, its place, and parts of what the message says."""

    name: str
    draft: Callable[[], Draft]
    error: type[NnrtError]
    place: str
    said: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


# Refused as a whole, because its parts don't fit together.
MALFORMED: list[BadModel] = []
# Refused for one node, which GetSupportedOperation explains.
WRONG_NODE: list[BadModel] = []

Make = Callable[[], Draft]
Spoil = Callable[[Draft], object]


def malformed(place: str, *said: str, error: type[NnrtError] = InvalidParameter) -> Callable[[Spoil], Spoil]:
    """y = x + constant (tensors 0 'x', 1 'values', 2 'y', node 0 'sum'), after the function has spoiled it."""

    def declare(spoil: Spoil) -> Spoil:
        def make() -> Draft:
            draft = Draft.sum_of_input_and([1, 2, 3])
            spoil(draft)
            return draft

        MALFORMED.append(BadModel(spoil.__name__, make, error, place, said))
        return spoil

    return declare


def wrong_node(place: str, *said: str, error: type[NnrtError] = InvalidParameter) -> Callable[[Make], Make]:
    """The model that the function makes."""

    def declare(make: Make) -> Make:
        WRONG_NODE.append(BadModel(make.__name__, make, error, place, said))
        return make

    return declare


# ---- nodes and attributes as messages


@malformed("node 0 'sum'", "node_type is 4711", "5 (ADD_FUSION)")
def unknown_node_type(draft: Draft) -> None:
    draft.nodes[0].node_type = 4711


@malformed("node 0 'sum'", "NONE has no attributes set", "none exists")
def no_node_type(draft: Draft) -> None:
    draft.nodes[0].Clear()
    draft.nodes[0].name = "sum"


@malformed("node 0 'sum'", "node_type is SOFTMAX but the attributes are those of ADD_FUSION")
def attributes_of_another_type(draft: Draft) -> None:
    draft.nodes[0].node_type = NodeType.SOFTMAX


@malformed("node 0 'sum'", "ADD_FUSION has no attributes set", "set the field add_fusion, even if it is empty")
def no_attributes(draft: Draft) -> None:
    draft.nodes[0].ClearField("add_fusion")


@malformed("node 0 'sum'", "quant_type is 9", "1 (ALL)")
def unknown_quant_type(draft: Draft) -> None:
    draft.nodes[0].quant_type = 9


@malformed("node 0 'sum'", "there are 100000 values in axis; use at most 1024")
def attribute_with_too_many_values(draft: Draft) -> None:
    draft.nodes[0].node_type = NodeType.UNSQUEEZE
    draft.nodes[0].unsqueeze.axis.extend(range(100_000))


@malformed("node 0 'sum'", "there are 2048 values in paddings")
def attribute_with_too_many_lists(draft: Draft) -> None:
    draft.nodes[0].node_type = NodeType.PAD_FUSION
    for _ in range(2):
        draft.nodes[0].pad_fusion.paddings.add(values=range(1024))


# ---- indices and structure


@malformed("ADD_FUSION node 0 'sum'", "there is no tensor 9; the graph has 3")
def node_reads_a_tensor_that_is_not(draft: Draft) -> None:
    draft.nodes[0].input_index[0] = 9


@malformed("the graph's outputs", "there is no tensor 4294967295")
def graph_gives_a_tensor_that_is_not(draft: Draft) -> None:
    draft.message.output_index[0] = 2**32 - 1


@malformed("the graph's inputs", "there is no tensor 3")
def graph_takes_a_tensor_that_is_not(draft: Draft) -> None:
    draft.message.input_index.append(3)


@malformed("", "the graph has no outputs; name at least one tensor")
def nothing_at_all(draft: Draft) -> None:
    draft.message.Clear()


@malformed("", "the graph has no outputs")
def no_outputs(draft: Draft) -> None:
    del draft.message.output_index[:]


@malformed("the graph's outputs", "there is no tensor 2; the graph has 0")
def no_tensors(draft: Draft) -> None:
    del draft.tensors[:]
    del draft.nodes[:]
    del draft.message.input_index[:]


@malformed("the graph's outputs", "tensor index 2 comes twice; name each tensor once")
def one_output_a_hundred_thousand_times(draft: Draft) -> None:
    draft.message.output_index.extend([2] * 100_000)


@malformed("tensor 0 'x'", "both the graph's inputs and the graph's inputs write it; a tensor has one source")
def one_input_twice(draft: Draft) -> None:
    draft.message.input_index.append(0)


@malformed("tensor 2 'y'", "both ADD_FUSION node 0 'sum' and ADD_FUSION node 1 'again' write it")
def two_nodes_write_one_tensor(draft: Draft) -> None:
    draft.node(NodeType.ADD_FUSION, [0, 1], [2], name="again")


@malformed("tensor 1 'values'", "both the model's data and ADD_FUSION node 0 'sum' write it")
def node_writes_a_constant(draft: Draft) -> None:
    draft.nodes[0].output_index.append(1)


@malformed("tensor 1 'values'", "both the model's data and the graph's inputs write it")
def constant_is_an_input(draft: Draft) -> None:
    draft.message.input_index.append(1)


@malformed("tensor 3 'alone'", "no node reads or writes it; leave it out")
def tensor_that_nobody_uses(draft: Draft) -> None:
    draft.tensor([1], name="alone")


@malformed("tensor 1 'values' of ADD_FUSION node 0 'sum'", "nothing writes it; give it data, or make it an input")
def no_weights(draft: Draft) -> None:
    draft.tensors[1].ClearField("data")


@malformed("tensor 2 'y' of the graph's outputs", "nothing writes it")
def output_that_no_node_writes(draft: Draft) -> None:
    del draft.nodes[:]
    draft.message.output_index.extend([0, 1])


@malformed("ADD_FUSION node 0 'sum'", "the node writes no tensor; give it an output")
def node_without_outputs(draft: Draft) -> None:
    del draft.nodes[0].output_index[:]
    draft.message.output_index[0] = 0
    del draft.tensors[2]


@malformed("ADD_FUSION node 0 'sum'", "the node depends on its own output; a graph has no cycles")
def node_reads_what_it_writes(draft: Draft) -> None:
    draft.nodes[0].input_index[1] = 2
    draft.message.output_index.append(1)


@malformed("ADD_FUSION node 0 'sum'", "the node depends on its own output")
def long_cycle(draft: Draft) -> None:
    last = 2
    for _ in range(1000):
        following = draft.tensor([3])
        draft.node(NodeType.ADD_FUSION, [last, 1], [following])
        last = following
    draft.nodes[0].input_index[0] = last
    draft.message.output_index.append(0)


@malformed("", "there are 65537 Node messages or more; use at most 65536")
def too_many_nodes(draft: Draft) -> None:
    draft.message.MergeFromString(b"\x22\x00" * 65536)


@malformed("", "there are 262145 Tensor messages or more; use at most 262144")
def too_many_tensors(draft: Draft) -> None:
    draft.message.MergeFromString(b"\x2a\x00" * 262144)


@malformed("", "there are 2097157 references to tensors; use at most 1048576")
def too_many_operands(draft: Draft) -> None:
    draft.nodes[0].input_index.extend([0] * (2 << 20))


@malformed("", "there are 1048577 QuantParam messages or more; use at most 1048576")
def too_many_quantization_parameters(draft: Draft) -> None:
    draft.tensors[0].MergeFromString(b"\x32\x00" * (1 << 20))
    draft.tensors[1].quant_params.add()


# ---- tensors and their data


@malformed("tensor 0 'x'", "data_type is 31", "43 (FLOAT32)")
def unknown_data_type(draft: Draft) -> None:
    draft.tensors[0].data_type = 31


@malformed("tensor 0 'x'", "format is 7", "1 (NHWC)")
def unknown_format(draft: Draft) -> None:
    draft.tensors[0].format = 7


@malformed("tensor 0 'x'", "dimension 0 is -2; use -1 (unknown) or 0..2147483647")
def negative_dimension(draft: Draft) -> None:
    draft.tensors[0].dims[0] = -2


@malformed("tensor 0 'x'", "FLOAT32 overflows 2^63 bytes", f"[{MAX_DIM}, {MAX_DIM}]")
def shape_that_overflows(draft: Draft) -> None:
    draft.tensors[0].dims[:] = [MAX_DIM, MAX_DIM]


@malformed("tensor 0 'x'", "FLOAT32 overflows 2^63 bytes")
def empty_shape_that_overflows(draft: Draft) -> None:
    draft.tensors[0].dims[:] = [0, MAX_DIM, MAX_DIM, MAX_DIM]


@malformed("tensor 0 'x'", "there are 1000 dimensions; use at most 32")
def rank_1000(draft: Draft) -> None:
    draft.tensors[0].dims[:] = [1] * 1000


@malformed("tensor 1 'values'", "there are 4 bytes of data; FLOAT32[3] has 12")
def data_too_short(draft: Draft) -> None:
    draft.tensors[1].data.inline = bytes(4)


@malformed("tensor 1 'values'", "there are 12 bytes of data", f"FLOAT32[{MAX_DIM}] has {4 * MAX_DIM}")
def data_for_a_gigantic_shape(draft: Draft) -> None:
    draft.tensors[1].dims[0] = MAX_DIM


@malformed("tensor 1 'values'", "it has data, but is FLOAT32[?]; give it every dimension")
def data_of_unknown_shape(draft: Draft) -> None:
    draft.tensors[1].dims[0] = -1


@malformed("tensor 1 'values'", "the data type is UNKNOWN; give one")
def data_of_unknown_type(draft: Draft) -> None:
    draft.tensors[1].data_type = DataType.UNKNOWN


@malformed("tensor 1 'values'", "its data is a region of a buffer; constants travel inline or by digest")
def data_in_a_buffer(draft: Draft) -> None:
    draft.tensors[1].data.region.buffer_id = 1


@malformed("tensor 1 'values'", "its digest has 31 bytes; a SHA-256 has 32")
def short_digest(draft: Draft) -> None:
    draft.tensors[1].data.constant.sha256 = bytes(31)


@malformed("tensor 1 'values'", "it has 12 bytes and is sent by digest; send up to 1024 inline")
def small_constant_by_digest(draft: Draft) -> None:
    draft.tensors[1].data.constant.sha256 = bytes(32)
    draft.tensors[1].data.constant.size_bytes = 12


@malformed("tensor 1 'values'", f"its data has {2**63} bytes; FLOAT32[3] has 12")
def digest_of_2_to_the_63_bytes(draft: Draft) -> None:
    draft.tensors[1].data.constant.sha256 = bytes(32)
    draft.tensors[1].data.constant.size_bytes = 2**63


@malformed("tensor 1 'values'", "it has data, but is FLOAT32[?]; give it every dimension")
def digest_of_unknown_shape(draft: Draft) -> None:
    draft.tensors[1].dims[0] = -1
    draft.tensors[1].data.constant.sha256 = bytes(32)
    draft.tensors[1].data.constant.size_bytes = 2000


@malformed("tensor 0 'xxxxxxxx", "there are 1000 dimensions")
def name_of_a_megabyte(draft: Draft) -> None:
    draft.tensors[0].name = "x" * (1 << 20)
    draft.tensors[0].dims[:] = [1] * 1000


@malformed("tensor 0 '\U0001f4a5\U0001f4a5", "there are 1000 dimensions")
def name_of_a_megabyte_of_bombs(draft: Draft) -> None:
    draft.tensors[0].name = "\U0001f4a5" * (1 << 18)
    draft.tensors[0].dims[:] = [1] * 1000


# ---- nodes that no device could compute


@wrong_node("SOFTMAX node 0", "axis is 4 but the rank is 2; use -2..1")
def axis_outside() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2, 3])], [draft.output([2, 3])], axis=[4])
    return draft


@wrong_node("ACTIVATION node 0 'f'", "activation_type is 77; use one of", "1 (RELU)")
def unknown_attribute_value() -> Draft:
    draft = Draft()
    draft.node(NodeType.ACTIVATION, [draft.input([2])], [draft.output([2])], name="f", activation_type=77)
    return draft


@wrong_node("ADD_FUSION node 0", "it has 1 inputs; give 2 (a, b)")
def too_few_operands() -> Draft:
    draft = Draft()
    draft.node(NodeType.ADD_FUSION, [draft.input([2])], [draft.output([2])])
    return draft


@wrong_node("ADD_FUSION node 0", "it has 100000 inputs; give 2 (a, b)")
def far_too_many_operands() -> Draft:
    draft = Draft()
    draft.node(NodeType.ADD_FUSION, [draft.input([2])] * 100_000, [draft.output([2])])
    return draft


@wrong_node("CONCAT node 0", "it has 0 inputs; give 1 or more (parts)")
def no_operands() -> Draft:
    draft = Draft()
    draft.node(NodeType.CONCAT, [], [draft.output([2])])
    return draft


@wrong_node("SOFTMAX node 0", "it has 2 outputs; give 1")
def too_many_outputs() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2])], [draft.output([2]), draft.output([2])])
    return draft


@wrong_node("SOFTMAX node 0", "x is INT32; use one of FLOAT16, FLOAT32, FLOAT64")
def wrong_data_type() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2], DataType.INT32)], [draft.output([2])])
    return draft


@wrong_node("SOFTMAX node 0", "x is UNKNOWN; use one of")
def input_of_unknown_data_type() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2], DataType.UNKNOWN)], [draft.output([2])])
    return draft


@wrong_node("SOFTMAX node 0", "the scale of x is nan; use a number above 0")
def scale_that_is_no_number() -> Draft:
    return quantized(scale=float("nan"))


@wrong_node("SOFTMAX node 0", "x is quantized to -5 bits; use 8")
def negative_number_of_bits() -> Draft:
    return quantized(scale=1, num_bits=-5)


@wrong_node("SOFTMAX node 0", "the zero point of x is -2147483648; use -128..127 (INT8)")
def zero_point_outside() -> Draft:
    return quantized(scale=1, zero_point=-(2**31))


@wrong_node("SOFTMAX node 0", "x INT8[3] has 100000 quantization parameters; use 1")
def more_scales_than_channels() -> Draft:
    draft = quantized(scale=1)
    draft.tensors[0].MergeFromString(b"\x32\x00" * 99_999)
    return draft


@wrong_node("AVGPOOL_FUSION node 0", "x has rank 3 (shape [1, 2, 3]); use rank 4")
def wrong_rank() -> Draft:
    draft = Draft()
    draft.node(NodeType.AVGPOOL_FUSION, [draft.input([1, 2, 3])], [draft.output([1, 2, 3])], kernel_size=[1, 1])
    return draft


@wrong_node("CONV2D_FUSION node 0", f"stride is [0, {2**63 - 1}]; use 2 values of 1 or more")
def strides_that_are_none() -> Draft:
    return convolution(stride=[0, 2**63 - 1])


@wrong_node("CONV2D_FUSION node 0", "pad_mode is 9; use one of 0 (PAD), 1 (SAME), 2 (VALID)")
def padding_mode_that_is_none() -> Draft:
    return convolution(pad_mode=9)


@wrong_node("CONV2D_FUSION node 0", "group is -3; use 1 or more")
def negative_groups() -> Draft:
    return convolution(group=-3)


@wrong_node(
    "CONV2D_FUSION node 0", "the window covers a height of", "use a smaller kernel or dilation, or more padding"
)
def dilation_beyond_the_image() -> Draft:
    return convolution(dilation=[MAX_DIM, MAX_DIM])


@wrong_node("MATMUL_FUSION node 0", "rows of 3 elements", "columns of 4", "make them equal")
def matrices_that_do_not_fit() -> Draft:
    draft = Draft()
    operands = [draft.input([2, 3]), draft.input([4, 5])]
    draft.node(NodeType.MATMUL_FUSION, operands, [draft.output([2, 5])])
    return draft


@wrong_node("SOFTMAX node 0", "'y' is declared [3, 2] but is [2, 3]")
def declared_in_another_shape() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2, 3])], [draft.output([3, 2], name="y")])
    return draft


@wrong_node("SOFTMAX node 0", "'y' is declared INT8 but is FLOAT32")
def declared_in_another_type() -> Draft:
    draft = Draft()
    draft.node(NodeType.SOFTMAX, [draft.input([2])], [draft.output([2], DataType.INT8, name="y")])
    return draft


@wrong_node("SOFTMAX node 0", "'y' is declared NCHW but is NHWC")
def declared_in_another_format() -> Draft:
    draft = Draft()
    x = draft.input([1, 1, 1, 1], format=Format.NHWC)
    draft.node(NodeType.SOFTMAX, [x], [draft.output([1, 1, 1, 1], name="y", format=Format.NCHW)])
    return draft


@wrong_node("CONCAT node 0", "dimension 0 is 4294967294; use -1 (unknown) or 0..2147483647")
def dimension_that_overflows() -> Draft:
    draft = Draft()
    part = draft.input([MAX_DIM])
    draft.node(NodeType.CONCAT, [part, part], [draft.output([-1])])
    return draft


@wrong_node("ADD_FUSION node 0", "overflows 2^63 bytes")
def broadcast_that_overflows() -> Draft:
    draft = Draft()
    operands = [draft.input([MAX_DIM, 1, 1]), draft.input([MAX_DIM, 1]), draft.input([MAX_DIM])]
    plane = draft.tensor([MAX_DIM, MAX_DIM, 1], DataType.UNKNOWN)
    draft.node(NodeType.ADD_FUSION, operands[:2], [plane])
    draft.node(NodeType.ADD_FUSION, [plane, operands[2]], [draft.output([-1, -1, -1])])
    return draft


@wrong_node("ADD_FUSION node 0 'wide'", f"the daemon's limit (--tensor-bytes) is {TENSOR_BYTES}", error=OutOfMemory)
def output_above_the_limit_of_a_tensor() -> Draft:
    draft = Draft()
    operands = [draft.input([1024, 1]), draft.input([1, 1024])]
    draft.node(NodeType.ADD_FUSION, operands, [draft.output([1024, 1024])], name="wide")
    draft.node(NodeType.ADD_FUSION, [draft.input([1024, 1]), draft.input([1, 257])], [draft.output([1024, 257])])
    # 1024 x 256 floats are exactly the limit.
    draft.node(NodeType.ADD_FUSION, [draft.input([1024, 1]), draft.input([1, 256])], [draft.output([1024, 256])])
    draft.tensors[draft.nodes[0].output_index[0]].dims[:] = [1024, -1]
    return draft


@wrong_node("PAD_FUSION node 0", "paddings[0] is [-1, 9223372036854775807]; use 0 or more")
def hostile_paddings() -> Draft:
    return padding([[-1, 2**63 - 1]])


@wrong_node("PAD_FUSION node 0", "dimension 0 is 9223372036854775809; use -1 (unknown) or 0..")
def gigantic_paddings() -> Draft:
    return padding([[0, 2**63 - 1]])


@wrong_node("PAD_FUSION node 0", "padding_mode is 8; use one of")
def unknown_padding_mode() -> Draft:
    return padding([[0, 1]], padding_mode=8)


@wrong_node("PAD_FUSION node 0", "[0, 9] but REFLECT mirrors at most 1 elements")
def more_mirrored_than_there_is() -> Draft:
    return padding([[0, 9]], padding_mode=PaddingMode.REFLECT)


@wrong_node("RESHAPE node 0", "[-1, -1]; use at most one -1")
def shape_with_two_unknowns() -> Draft:
    return reshaping(np.array([-1, -1]))


@wrong_node("RESHAPE node 0", "overflows 2^63 bytes")
def shape_operand_that_overflows() -> Draft:
    return reshaping(np.array([0, MAX_DIM, MAX_DIM, MAX_DIM]), dims=[0, 2])


@wrong_node("RESHAPE node 0", "shape INT64[100] has 100 elements, one for each dimension of the output; use at most 32")
def reshaped_to_rank_100() -> Draft:
    return reshaping(np.ones(100, np.int64), dims=[1])


@wrong_node("CAST node 0", "31 names no data type; use 1 (BOOL) to 12 (FLOAT64)")
def cast_to_what_is_no_type() -> Draft:
    draft = Draft()
    type_ = draft.constant(np.array([31], np.int32))
    draft.node(NodeType.CAST, [draft.input([2]), type_], [draft.output([2])])
    return draft


def quantized(**parameters: float) -> Draft:
    draft = Draft()
    x = draft.input([3], DataType.INT8, quant_params=[parameters])
    draft.node(NodeType.SOFTMAX, [x], [draft.output([3])])
    return draft


def convolution(**attrs: object) -> Draft:
    draft = Draft()
    operands = [draft.input([1, 4, 4, 1]), draft.input([1, 3, 3, 1]), draft.input([1])]
    attrs = {"pad_mode": PadMode.VALID, **attrs}
    draft.node(NodeType.CONV2D_FUSION, operands, [draft.output([-1] * 4)], **attrs)
    return draft


def padding(paddings: list[list[int]], **attrs: object) -> Draft:
    draft = Draft()
    operands = [draft.input([2]), draft.constant(np.array(paddings))]
    draft.node(NodeType.PAD_FUSION, operands, [draft.output([-1])], **attrs)
    return draft


def reshaping(shape: np.ndarray[tuple[int], np.dtype[np.int64]], dims: tuple[int, ...] | list[int] = (2, 3)) -> Draft:
    draft = Draft()
    operands = [draft.input(dims), draft.constant(shape)]
    draft.node(NodeType.RESHAPE, operands, [draft.output([-1])])
    return draft


@pytest.mark.parametrize("bad", MALFORMED, ids=str)
def test_model_whose_parts_do_not_fit(client: RawClient, bad: BadModel) -> None:
    model = bad.draft().message
    for ask in (client.supported, client.prepare):
        with pytest.raises(bad.error) as refusal:
            ask(model)
        assert type(refusal.value) is bad.error
        assert refusal.value.place.startswith(bad.place)
        for part in bad.said:
            assert part in refusal.value.message


@pytest.mark.parametrize("bad", WRONG_NODE, ids=str)
def test_node_that_can_not_be(client: RawClient, bad: BadModel) -> None:
    model = bad.draft().message
    supports = client.supported(model)
    reason = next(support.reason for support in supports if not support.supported)
    with pytest.raises(bad.error) as refusal:
        client.prepare(model)
    assert type(refusal.value) is bad.error
    assert refusal.value.place == bad.place
    assert refusal.value.message == reason
    for part in bad.said:
        assert part in reason


def test_bytes_that_are_no_name(client: RawClient) -> None:
    model = Draft.sum_of_input_and([1]).message.SerializeToString()
    for name, said in ((b"\xff\xfe", "can't be decoded"), (b"\xc3\xa9", "")):
        request = device_pb2.GetSupportedOperationRequest.FromString(b"\x0a" + bytes([len(model)]) + model)
        data = request.SerializeToString().replace(b"\x03sum", b"\x03s" + name)
        if said:
            with pytest.raises(InvalidParameter, match=said) as refusal:
                client.call("NnrtDevice.GetSupportedOperation", data)
            assert refusal.value.place == "NnrtDevice/GetSupportedOperation"
        else:
            (reply,) = client.call("NnrtDevice.GetSupportedOperation", data)
            assert reply.nodes[0].supported


def test_names_of_a_megabyte_work(client: RawClient) -> None:
    draft = Draft.sum_of_input_and([1, 2])
    draft.message.name = draft.nodes[0].name = "n" * (1 << 20)
    for tensor in draft.tensors:
        tensor.name = "t" * (1 << 20)
    prepared = client.prepare(draft.message).prepared
    (result,) = client.run(prepared.model_id, np.zeros(2, np.float32))
    assert result.tolist() == [1, 2]
    request = prepared_model_pb2.RunRequest(
        model_id=prepared.model_id, inputs=[io_tensor(np.zeros(3, np.float32), name="i" * (1 << 20))]
    )
    with pytest.raises(InvalidParameter, match="the model takes FLOAT32"):
        client.ask("PreparedModel.Run", request)


def chain(nodes: int) -> Draft:
    """Each node reads the result of the one before."""
    draft = Draft()
    last = draft.input([2])
    one = draft.constant(np.ones(2, np.float32))
    for _ in range(nodes):
        following = draft.tensor([2])
        draft.node(NodeType.ADD_FUSION, [last, one], [following])
        last = following
    draft.message.output_index.append(last)
    return draft


def backwards_chain(nodes: int) -> Draft:
    """Make a chain with its nodes in the worst order."""
    draft = chain(nodes)
    turned = list(reversed(draft.nodes))
    del draft.nodes[:]
    draft.nodes.extend(turned)
    return draft


def fan_out(nodes: int) -> Draft:
    """All nodes read one tensor, and a last one reads all their results."""
    draft = Draft()
    x = draft.input([2])
    results = [draft.tensor([2]) for _ in range(nodes)]
    for result in results:
        draft.node(NodeType.ADD_FUSION, [x, x], [result])
    draft.node(NodeType.CONCAT, results, [draft.output([-1])])
    return draft


def constants(nodes: int) -> Draft:
    """Each node has a constant of its own."""
    draft = Draft()
    last = draft.input([2])
    for _ in range(nodes):
        following = draft.tensor([2])
        draft.node(NodeType.ADD_FUSION, [last, draft.constant(np.ones(2, np.float32))], [following])
        last = following
    draft.message.output_index.append(last)
    return draft


@pytest.mark.parametrize(
    ("make", "nodes", "expected"),
    [
        (chain, 10_000, [10_000] * 2),
        (backwards_chain, 10_000, [10_000] * 2),
        (fan_out, 10_000, [0.0] * 20_000),
        (constants, 10_000, [10_000] * 2),
    ],
)
@pytest.mark.slow
def test_large_models_take_seconds(
    client: RawClient, make: Callable[[int], Draft], nodes: int, expected: list[float]
) -> None:
    """Quadratic work on them takes minutes, and no call of the client's has those."""
    model = make(nodes).message
    assert all(support.supported for support in client.supported(model))
    prepared = client.prepare(model).prepared
    (result,) = client.run(prepared.model_id, np.zeros(2, np.float32))
    assert result.tolist() == expected
    client.call("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=prepared.model_id))
