"""Each operator has its entry in every room: contract, client, kernels."""

import importlib
from types import ModuleType
from typing import Any

import pytest
from nnrt_backend_reference.kernels.kernel import KERNELS

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations import OPERATIONS
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.v2 import attributes_pb2, node_pb2

_STRUCTS: dict[int, Any] = {
    field.number - 1000: field.message_type for field in node_pb2.Node.DESCRIPTOR.oneofs_by_name["attr"].fields
}


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: NodeType(node_type).name)
def test_declared_operators_have_a_kernel_in_the_same_family(node_type: NodeType) -> None:
    kernel = KERNELS[node_type]
    assert kernel.__module__.rpartition(".")[2] == OPERATORS[node_type].family


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: NodeType(node_type).name)
def test_declared_attributes_are_those_of_the_contract(node_type: NodeType) -> None:
    """They have equal names in equal order."""
    assert list(OPERATORS[node_type].attributes) == [field.name for field in _STRUCTS[node_type].fields]


def test_nothing_is_missing() -> None:
    """Every operation, every parameter tensor and every node type has its declaration."""
    assert set(OPERATIONS) == set(OperationType)
    claimed = [tensor_type for operation in OPERATIONS.values() for tensor_type in operation.tensor_types]
    assert sorted(claimed) == sorted(set(TensorType) - {TensorType.TENSOR})
    assert set(OPERATORS) == set(KERNELS) == set(NodeType) - {NodeType.NONE}
    assert (len(OPERATIONS), len(claimed), len(OPERATORS)) == (108, 162, 96)


def test_operations_lower_to_declared_operators() -> None:
    assert {operation.node_type for operation in OPERATIONS.values()} <= set(OPERATORS)


@pytest.mark.parametrize("message", attributes_pb2.DESCRIPTOR.message_types_by_name)
def test_every_attribute_struct_has_a_node_type(message: str) -> None:
    used = {descriptor.name for descriptor in _STRUCTS.values()}
    assert message in used or message == "Int64List"


@pytest.mark.parametrize(
    "room",
    [
        "nnrt_hdi.ops",
        "nnrt_client.model.operations",
        "nnrt_client.onnx_import.operators",
        "nnrt_onnx_lowering.lowering",
        "nnrt_backend_reference.kernels",
    ],
)
def test_families_are_called_the_same_in_every_room(room: str) -> None:
    families = {operator.family for operator in OPERATORS.values()}
    for family in families:
        assert isinstance(importlib.import_module(f"{room}.{family}"), ModuleType)
