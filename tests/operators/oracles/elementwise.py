"""Functions of one element."""

from nnrt_hdi.enums import Format, NodeType

from .oracle import DTYPES, AnyArray, Attrs, Onnx, element_type, oracle


@oracle(NodeType.CAST)
def cast(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    dtype = DTYPES[int(arrays[1].reshape(-1)[0]) - 1]
    return model.op("Cast", "x0", to=element_type(dtype))
