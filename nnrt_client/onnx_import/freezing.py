"""Frozen inputs: constants that replace inputs of a file before it is imported."""

import numpy as np
from onnx import ModelProto, ValueInfoProto, numpy_helper

from nnrt_client.onnx_import.file import declared_size, known_dtype, type_name
from nnrt_client.tensors.frozen import Constants, frozen_array, require_known
from nnrt_hdi.errors import InvalidParameter


def freeze(model: ModelProto, constants: Constants) -> None:
    """Replace inputs of a model by initializers. Raise InvalidParameter for names, types or shapes that don't fit."""
    graph = model.graph
    inputs = {info.name: info for info in graph.input}
    require_known(constants, list(inputs))
    if not constants:
        return
    tensors = [
        numpy_helper.from_array(frozen_array(name, value, _dtype(inputs[name]), _shape(inputs[name])), name)
        for name, value in constants.items()
    ]
    # An initializer of the same name is the default value of the input: the constant replaces it.
    kept_tensors = [tensor for tensor in graph.initializer if tensor.name not in constants]
    kept_inputs = [info for info in graph.input if info.name not in constants]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend([*kept_tensors, *tensors])
    graph.input.extend(kept_inputs)


def _shape(info: ValueInfoProto) -> list[int] | None:
    type_ = info.type.tensor_type
    return [declared_size(dim) for dim in type_.shape.dim] if type_.HasField("shape") else None


def _dtype(info: ValueInfoProto) -> np.dtype[np.generic]:
    elem_type = info.type.tensor_type.elem_type
    if (dtype := known_dtype(elem_type)) is not None:
        return dtype
    raise InvalidParameter(
        f"it is {type_name(elem_type)}; numbers and truth values can be constants",
        place=f"constant for input {info.name!r}",
    )
