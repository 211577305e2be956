"""Matrix products, and LSTM, which consists of them."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Call, operation, refuse
from nnrt_client.model.operations.parameter import activation, boolean, integer, number
from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import AttrValue


def _full_connection(call: Call) -> dict[str, AttrValue]:
    """Set `has_bias` from the number of inputs (before API 12 a model could not set it), and `use_axis` from `axis`."""
    has_bias = len(call.inputs) == 3
    if call.attrs.get("has_bias", has_bias) != has_bias:
        refuse(f"has_bias is {not has_bias} but there are {len(call.inputs)} inputs; give {2 + (not has_bias)}")
    if "axis" in call.attrs and call.attrs.get("use_axis") is False:
        refuse(f"axis is {call.attrs['axis']} but use_axis is False; leave one of them out")
    use_axis = "axis" in call.attrs or bool(call.attrs.get("use_axis"))
    return {"has_bias": has_bias, "use_axis": use_axis}


OPERATIONS = (
    operation(
        OperationType.FULL_CONNECTION,
        NodeType.FULL_CONNECTION,
        integer("axis", TensorType.FULL_CONNECTION_AXIS),
        boolean("has_bias", TensorType.FULL_CONNECTION_HAS_BIAS),
        boolean("use_axis", TensorType.FULL_CONNECTION_USE_AXIS),
        activation(TensorType.FULL_CONNECTION_ACTIVATIONTYPE),
        inputs=(2, 3),
        derive=_full_connection,
    ),
    operation(
        OperationType.MATMUL,
        NodeType.MATMUL_FUSION,
        boolean("transpose_a", TensorType.MATMUL_TRANSPOSE_A),
        boolean("transpose_b", TensorType.MATMUL_TRANSPOSE_B),
        activation(TensorType.MATMUL_ACTIVATION_TYPE),
        inputs=2,
    ),
    operation(
        OperationType.LSTM,
        NodeType.LSTM,
        boolean("bidirectional", TensorType.LSTM_BIDIRECTIONAL),
        boolean("has_bias", TensorType.LSTM_HAS_BIAS),
        integer("input_size", TensorType.LSTM_INPUT_SIZE),
        integer("hidden_size", TensorType.LSTM_HIDDEN_SIZE),
        integer("num_layers", TensorType.LSTM_NUM_LAYERS),
        integer("num_directions", TensorType.LSTM_NUM_DIRECTIONS),
        number("dropout", TensorType.LSTM_DROPOUT),
        number("zoneout_cell", TensorType.LSTM_ZONEOUT_CELL),
        number("zoneout_hidden", TensorType.LSTM_ZONEOUT_HIDDEN),
        integer("proj_size", TensorType.LSTM_PROJ_SIZE),
        inputs=6,
        outputs=3,
        node_name="LSTM",
        sets_quant_type=False,
    ),
)
