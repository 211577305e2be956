"""Builder of Model messages that checks nothing."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnrt_hdi import wire
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES
from nnrt_hdi.tensor import Array, TensorSpec, data_type_of
from nnrt_hdi.v2 import model_pb2, node_pb2

_FIELD_OF_TYPE = {field.number - 1000: field.name for field in node_pb2.Node.DESCRIPTOR.oneofs_by_name["attr"].fields}


class Draft:
    """Model message under construction. Each method that adds something returns its index."""

    def __init__(self) -> None:
        self.message = model_pb2.Model()
        # Bytes of the constants that the message refers to by digest.
        self.uploads: list[bytes] = []

    @property
    def nodes(self) -> Any:
        return self.message.nodes

    @property
    def tensors(self) -> Any:
        return self.message.all_tensors

    def tensor(self, dims: Sequence[int] = (), data_type: int = DataType.FLOAT32, **fields: Any) -> int:
        self.tensors.add(dims=dims, data_type=data_type, **fields)
        return len(self.tensors) - 1

    def input(self, dims: Sequence[int] = (), data_type: int = DataType.FLOAT32, **fields: Any) -> int:
        index = self.tensor(dims, data_type, **fields)
        self.message.input_index.append(index)
        return index

    def output(self, dims: Sequence[int] = (), data_type: int = DataType.UNKNOWN, **fields: Any) -> int:
        index = self.tensor(dims, data_type, **fields)
        self.message.output_index.append(index)
        return index

    def constant(self, array: Array, **fields: Any) -> int:
        """Add a tensor with data: inline if it is small, else by its digest."""
        index = self.tensor(array.shape, data_type_of(array.dtype), **fields)
        data = self.tensors[index].data
        if array.nbytes <= INLINE_CONSTANT_BYTES:
            data.inline = array.tobytes()
        else:
            self.uploads.append(array.tobytes())
            data.constant.sha256 = self.digest(self.uploads[-1])
            data.constant.size_bytes = array.nbytes
        return index

    def node(self, node_type: NodeType, inputs: Sequence[int], outputs: Sequence[int], **attrs: Any) -> int:
        fields = {key: attrs.pop(key) for key in ("name", "quant_type") if key in attrs}
        self.nodes.add(node_type=node_type, input_index=inputs, output_index=outputs, **fields)
        field = getattr(self.nodes[-1], _FIELD_OF_TYPE[node_type])
        field.SetInParent()
        field.MergeFrom(type(field)(**attrs))
        return len(self.nodes) - 1

    @classmethod
    def sum_of_input_and(cls, values: Sequence[float], **fields: Any) -> "Draft":
        """Build y = x + values in FLOAT32: tensors 0 x, 1 values, 2 y, and node 0 'sum'."""
        draft = cls()
        array = np.array(values, np.float32)
        x = draft.input(array.shape, name="x")
        constant = draft.constant(array, name="values")
        y = draft.output(array.shape, name="y", **fields)
        draft.node(NodeType.ADD_FUSION, [x, constant], [y], name="sum")
        return draft

    @staticmethod
    def digest(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()


def spec_of(tensor: "model_pb2.Tensor") -> TensorSpec:
    """Return the TensorSpec of a tensor message in a PreparedModelInfo."""
    return wire.tensor_spec(tensor)
