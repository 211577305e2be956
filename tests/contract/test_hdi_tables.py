"""The wire messages and the Python enums against the tables of HDI 2.1: every name, number, order and type.

The tables in `data/` are written down apart from the code, so a slip has to be made twice to go unnoticed.
Names there are HDI's (in `oh_nn_enums.json` those of the application interface); this module says how they
are spelt here.
"""

import json
import re
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from nnrt_hdi import enums
from nnrt_hdi.v2 import attributes_pb2, enums_pb2, node_pb2

DATA = Path(__file__).parent / "data"
PACKAGE = ".nnrt_hdi.v2."


def load(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return table


HDI_ENUMS = load("hdi_enums.json")
STRUCTS = load("hdi_node_attrs.json")
NODE_TYPES: dict[str, int] = HDI_ENUMS["NodeType"]
NODE = node_pb2.DESCRIPTOR.message_types_by_name["Node"]


class EnumTable(NamedTuple):
    """An enum of a table: its name here, the prefix of its values on the wire, its members without prefix."""

    name: str
    wire_prefix: str
    members: dict[str, int]


# Name in the table -> name here, prefix in the table, prefix on the wire. Elsewhere the name is the prefix.
SPELLING = {
    "DeviceType": ("DeviceType", "", "DEVICE_TYPE_"),
    "DeviceStatus": ("DeviceStatus", "", "DEVICE_STATUS_"),
    "PerformanceMode": ("PerformanceMode", "PERFORMANCE_", "PERFORMANCE_"),
    "NNRT_ReturnCode": ("NnrtReturnCode", "NNRT_", "NNRT_"),
    "OH_NN_ReturnCode": ("ReturnCode", "OH_NN_", "RETURN_CODE_"),
}


def enum_table(name: str, values: dict[str, int]) -> EnumTable:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
    name_here, prefix_there, wire_prefix = SPELLING.get(name, (name, prefix, prefix))
    assert all(value.startswith(prefix_there) for value in values), name
    return EnumTable(name_here, wire_prefix, {key.removeprefix(prefix_there): n for key, n in values.items()})


ENUMS = [enum_table(name, values) for name, values in HDI_ENUMS.items()]
ENUMS.append(enum_table("OH_NN_ReturnCode", load("oh_nn_enums.json")["OH_NN_ReturnCode"]))

# Errors have the codes of the application interface here.
ON_THE_WIRE_ALONE = {"NnrtReturnCode"}
each_enum = pytest.mark.parametrize("table", ENUMS, ids=attrgetter("name"))
each_struct = pytest.mark.parametrize("struct", STRUCTS)


class WireField(NamedTuple):
    """The properties of a field by which it travels and is spelt in JSON."""

    number: int
    json_name: str
    type: str
    has_presence: bool


def table_type(field: FieldDescriptorProto) -> str:
    """The type of a field in the words of the tables."""
    type_name = field.type_name.removeprefix(PACKAGE)
    if field.type == FieldDescriptorProto.TYPE_ENUM:
        inner = f"enum {type_name}"
    elif field.type == FieldDescriptorProto.TYPE_MESSAGE:
        inner = "list<int64>" if type_name == "Int64List" else type_name
    else:
        inner = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"list<{inner}>" if field.label == FieldDescriptorProto.LABEL_REPEATED else inner


def wire_fields(message: Descriptor) -> list[WireField]:
    """The fields of a message in the order of the .proto file."""
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return [
        WireField(field.number, field.json_name, table_type(field_proto), field.has_presence)
        for field, field_proto in zip(message.fields, proto.field, strict=True)
    ]


def test_wire_has_the_enums_of_the_tables_and_no_other() -> None:
    assert set(enums_pb2.DESCRIPTOR.enum_types_by_name) == {table.name for table in ENUMS}


@each_enum
def test_wire_enum(table: EnumTable) -> None:
    wire = enums_pb2.DESCRIPTOR.enum_types_by_name[table.name]
    assert {value.name: value.number for value in wire.values} == {
        table.wire_prefix + name: number for name, number in table.members.items()
    }


@pytest.mark.parametrize(
    "table", [table for table in ENUMS if table.name not in ON_THE_WIRE_ALONE], ids=attrgetter("name")
)
def test_python_enum(table: EnumTable) -> None:
    python = getattr(enums, table.name)
    assert issubclass(python, IntEnum)
    assert {name: member.value for name, member in python.__members__.items()} == table.members


def test_wire_has_the_structs_of_the_table_and_no_other() -> None:
    assert set(attributes_pb2.DESCRIPTOR.message_types_by_name) == {*STRUCTS, "Int64List"}


@each_struct
def test_struct(struct: str) -> None:
    # Presence keeps absent (the documented default) and zero apart; lists cannot have it.
    assert wire_fields(attributes_pb2.DESCRIPTOR.message_types_by_name[struct]) == [
        WireField(number, field["name"], field["type"], not field["type"].startswith("list<"))
        for number, field in enumerate(STRUCTS[struct]["fields"], start=1)
    ]


def test_list_in_a_list() -> None:
    assert wire_fields(attributes_pb2.DESCRIPTOR.message_types_by_name["Int64List"]) == [
        WireField(1, "values", "list<int64>", False)
    ]


@each_struct
def test_struct_is_the_attribute_of_its_node_type(struct: str) -> None:
    node_type = STRUCTS[struct]["node_type"]
    field = NODE.fields_by_number[1000 + NODE_TYPES[node_type]]
    assert field.name == node_type.removeprefix("NODE_TYPE_").lower()
    assert field.message_type is not None
    assert "." + field.message_type.full_name == PACKAGE + struct
    assert field.containing_oneof is not None
    assert field.containing_oneof.name == "attr"


def test_every_node_type_but_none_has_one_attribute() -> None:
    attr = NODE.oneofs_by_name["attr"]
    numbers = [1000 + number for number in NODE_TYPES.values() if number != NODE_TYPES["NODE_TYPE_NONE"]]
    assert sorted(field.number for field in attr.fields) == sorted(numbers)
    assert len(STRUCTS) == len(numbers)


def test_node_around_its_attribute() -> None:
    assert [field for field in wire_fields(NODE) if field.number < 1000] == [
        WireField(1, "name", "string", False),
        WireField(2, "nodeType", "enum NodeType", False),
        WireField(3, "inputIndex", "list<uint32>", False),
        WireField(4, "outputIndex", "list<uint32>", False),
        WireField(5, "quantType", "enum QuantType", False),
    ]
