"""Matrix products, and recurrences built on them."""

from typing import Annotated

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import (
    FLOATS,
    NUMBERS,
    Bias,
    WeightMatrix,
    broadcast_shape,
    declared_data_type,
    higher_precision,
    known_product,
    normalized_axis,
    precision,
    require_channels,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec

Matrices = Annotated[Operand, Accepts(NUMBERS, min_rank=2)]
# The entries of LSTM, one for each layer and direction. If there is only one, its dimension may be left out.
Entries = Annotated[Operand, Accepts(FLOATS, min_rank=2, max_rank=3)]
EntryVectors = Annotated[Operand, Accepts(FLOATS, min_rank=1, max_rank=2)]


@operator(NodeType.FULL_CONNECTION, quantized=True)
def full_connection(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=1)],
    weight: WeightMatrix,
    bias: Bias | None = None,
    *,
    has_bias: bool | None = None,
    use_axis: bool | None = None,
    axis: int | None = None,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(X W^T + bias), where f is the fused activation and W is [out features, in features].

    X is x as a matrix with in features columns, and y is [rows, out features]. With use_axis, which an axis implies,
    the dimensions from axis (absent: 0) on are the columns, and y keeps those before it: [..., out features]. bias is
    [out features]; has_bias repeats whether there is one.
    """
    given = (x, weight) if bias is None else (x, weight, bias)
    require_fusable(activation_type, same_data_type(*given))
    out_features = weight.shape[0]
    if has_bias is not None and has_bias != (bias is not None):
        refuse(f"has_bias is {has_bias} but there are {len(given)} inputs; they must agree")
    if bias is not None:
        require_channels(out_features, bias)
    if axis is not None and use_axis is False:
        refuse(f"axis is {axis} but use_axis is False; leave one of them out")
    if axis is None and not use_axis:
        return TensorSpec(x.data_type, (_rows(x, weight), out_features))
    first = normalized_axis(axis or 0, x.rank)
    columns = known_product(x.shape[first:])
    if UNKNOWN_DIM not in (columns, weight.shape[1]) and columns != weight.shape[1]:
        refuse(f"{x} has {columns} elements from dimension {first} on but {weight} takes {weight.shape[1]}")
    return TensorSpec(x.data_type, (*x.shape[:first], out_features))


@operator(NodeType.MATMUL_FUSION, quantized=True)
def matmul(
    a: Matrices,
    b: Matrices,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
    declared: tuple[TensorSpec, ...],
) -> TensorSpec:
    """y = f(A B), where f is the fused activation: [..., M, K] by [..., K, N] is [..., M, N], and batches broadcast.

    transpose_a and transpose_b swap the last two dimensions of an operand first. The result has the higher-precision
    type of the operands, or a higher one that the model declares, and is computed in it. Integers wrap around.
    """
    lowest = higher_precision(a, b)
    data_type = declared_data_type(declared, lowest)
    if data_type not in NUMBERS or precision(data_type) < precision(lowest):
        refuse(f"the output is declared {data_type.name}; {a} by {b} gives {lowest.name} or a higher precision")
    require_fusable(activation_type, data_type)
    rows, inner = _matrix(a, transpose_a)
    inner_b, columns = _matrix(b, transpose_b)
    if UNKNOWN_DIM not in (inner, inner_b) and inner != inner_b:
        refuse(
            f"{a} has rows of {inner} elements but {b} has columns of {inner_b}; make them equal"
            f" (transpose_a is {transpose_a}, transpose_b {transpose_b})"
        )
    batch = broadcast_shape(_batch(a), _batch(b))
    return TensorSpec(data_type, (*batch, rows, columns))


@operator(NodeType.LSTM)
def lstm(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=3, max_rank=3)],
    w_ih: Entries,
    w_hh: Entries,
    bias: EntryVectors,
    hx: Entries,
    cx: Entries,
    *,
    bidirectional: bool = False,
    has_bias: bool = False,
    input_size: int = 0,
    hidden_size: int = 0,
    num_layers: int = 0,
    num_directions: int = 0,
    dropout: float = 0.0,
    zoneout_cell: float = 0.0,
    zoneout_hidden: float = 0.0,
    proj_size: int = 0,
) -> tuple[TensorSpec, ...]:
    """c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), step by step through x [steps, batch, inputs].

    The gates i, o, f, g (in ONNX's order) are the quarters of w_ih x + w_hh h + bias. For each layer, and in it for
    each direction (forward, backward), there is an entry in w_ih [entries, 4 hidden, inputs], w_hh [entries, 4 hidden,
    hidden], bias [entries, 8 hidden] (those of x before those of h; not applied without has_bias) and the first states
    hx and cx [entries, batch, hidden]. A layer reads the outputs of the one before it, forward and backward side by
    side.

    Outputs: the h of the last layer [steps, batch, directions hidden]; the last h and the last c of all entries. With z
    = zoneout_cell the next step gets z c + (1 - z) c', and with zoneout_hidden h likewise (Krueger et al. 2016).
    dropout is for training. Sizes of 0 follow from the operands, num_layers 0 means 1, and num_directions 0 follows
    from bidirectional.
    """
    same_data_type(x, w_ih, w_hh, bias, hx, cx)
    if proj_size:
        refuse(f"proj_size is {proj_size}, but no operand has the weights of a projection; use 0")
    _require_fractions(dropout=dropout, zoneout_cell=zoneout_cell, zoneout_hidden=zoneout_hidden)
    layers, directions = lstm_depth(num_layers, num_directions, bidirectional)
    sizes = {"entries": layers * directions}
    sizes.update({name: size for name, size in (("inputs", input_size), ("hidden", hidden_size)) if size})
    _match(sizes, x, "steps", "batch", "inputs")
    _match(sizes, w_hh, "entries", "4 hidden", "hidden")
    _match(sizes, w_ih, "entries", "4 hidden", "inputs")
    if has_bias:
        _match(sizes, bias, "entries", "8 hidden")
    _match(sizes, hx, "entries", "batch", "hidden")
    _match(sizes, cx, "entries", "batch", "hidden")
    steps, batch, hidden = (sizes.get(name, UNKNOWN_DIM) for name in ("steps", "batch", "hidden"))
    width = known_product((directions, hidden))
    if layers > 1 and width != UNKNOWN_DIM and sizes.setdefault("inputs", width) != width:
        refuse(f"layer 2 reads the {width} outputs of layer 1 but {w_ih} takes {sizes['inputs']}; make them equal")
    state = x.spec.with_shape((layers * directions, batch, hidden))
    return x.spec.with_shape((steps, batch, width)), state, state


def lstm_depth(num_layers: int, num_directions: int, bidirectional: bool) -> tuple[int, int]:
    """Return the numbers of layers and directions. Refuses contradictory numbers."""
    directions = 2 if bidirectional else 1
    if num_directions not in (0, directions):
        refuse(f"num_directions is {num_directions} but bidirectional {bidirectional}; use {directions}, or 0")
    if num_layers < 0:
        refuse(f"num_layers is {num_layers}; use 1 or more, or 0 for 1")
    return num_layers or 1, directions


def _require_fractions(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            refuse(f"{name} is {value}; use 0..1")


def _match(sizes: dict[str, int], operand: Operand, *dims: str) -> None:
    """Read sizes from an operand's dimensions, and add them to `sizes`. Refuses contradictory ones.

    `dims` describes each dimension by the size's name, or by a multiple of it: "hidden", "4 hidden". The operand may
    lack the first dimension if it is 1.
    """
    shape = (1, *operand.shape) if operand.rank < len(dims) else operand.shape
    for text, dim in zip(dims, shape, strict=True):
        times, _, name = text.rpartition(" ")
        multiple = int(times or 1)
        if dim != UNKNOWN_DIM and dim != sizes.setdefault(name, dim // multiple) * multiple:
            wanted = sizes[name] * multiple
            refuse(f"{operand} is not [{', '.join(dims)}] with {name} {sizes[name]}; give it {wanted} instead of {dim}")


def _rows(x: Operand, weight: Operand) -> int:
    """Return the number of rows of x as a matrix that fits the weight."""
    columns = weight.shape[1]
    if columns == 0:
        refuse(f"{weight} takes no elements; give it at least one column, or set axis")
    total = known_product(x.shape)
    if UNKNOWN_DIM in (total, columns):
        return UNKNOWN_DIM
    if total % columns:
        refuse(f"{x} has {total} elements, which are no rows of the {columns} that {weight} takes")
    return total // columns


def _matrix(operand: Operand, transposed: bool) -> Shape:
    """Return the last two dimensions, swapped if `transposed`."""
    return operand.shape[:-3:-1] if transposed else operand.shape[-2:]


def _batch(operand: Operand) -> Operand:
    return Operand(f"the batch of {operand.name}", operand.spec.with_shape(operand.shape[:-2]))
