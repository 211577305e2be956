"""Packed values: what is packed is unpacked, and bytes that are no packed form are refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_values import require_equal

from nnrt_hdi import wire
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.files.graph_file import described_spec, read_end_spec
from nnrt_hdi.packed_values import STRINGS, PackedSpec, ValueType, shape_of_strings
from nnrt_hdi.tensor import Array

ANY = ValueType(STRINGS)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6)


def strings(*texts: Any) -> Array:
    return np.array(texts, object)


@given(texts=TEXTS)
def test_strings(texts: list[str]) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    packed = ANY.pack(array)
    assert packed.dtype == np.uint8 and shape_of_strings(packed) == (len(texts),)
    require_equal(ANY.unpack(packed), array)
    require_equal(ANY.unpack(ANY.pack(texts)), array)


@pytest.mark.parametrize(
    "value",
    [
        strings(),
        strings("", ""),
        strings("a", "\0", "b\0"),
        strings(["ä", "日本"], ["x" * (1 << 20), "𝄞"]),
        np.array("one", object),
        np.empty((0, 3), object),
    ],
    ids=lambda value: str(value.shape),
)
def test_shapes_of_strings(value: Array) -> None:
    require_equal(ANY.unpack(ANY.pack(value)), value)


@pytest.mark.parametrize(
    "given",
    [
        ["a", "ü"],
        ("a", "ü"),
        [b"a", "ü"],
        ["a", "ü".encode()],
        np.array(["a", "ü"]),
        np.array(["a", "ü"], ">U1"),
        np.array(["a", "ü", "x"])[:2],
        np.array([b"a", "ü".encode()]),
        np.array([np.str_("a"), np.bytes_("ü".encode())], object),
    ],
    ids=repr,
)
def test_what_strings_may_be_given_as(given: Any) -> None:
    require_equal(ANY.unpack(ANY.pack(given)), strings("a", "ü"))


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 2 has it")
def test_strings_of_numpy_2() -> None:
    require_equal(ANY.unpack(ANY.pack(np.array(["a", "ü"], np.dtypes.StringDType()))), strings("a", "ü"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a", 1], "element 1 is int; give str, or bytes in UTF-8"),
        (["a", None], "element 1 is NoneType"),
        (["a", "\ud800"], r"element 1, '\\ud800', is no text in UTF-8: surrogates not allowed"),
        (["a", b"\xff"], r"element 1, b'\\xff', is no text in UTF-8: invalid start byte"),
        (np.ones(2, "f4"), r"it is float32\[2\]; give strings"),
        (1, "element 0 is int"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_string(given: Any, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        ANY.pack(given)


def test_the_declared_shape_holds() -> None:
    two = ValueType(STRINGS, (-1, 2))
    require_equal(two.unpack(two.pack([["a", "b"]])), strings(["a", "b"]))
    for packs in (two.pack, lambda value: two.unpack(ANY.pack(value))):
        with pytest.raises(InvalidParameter, match=r"its shape is \[1, 3\]; the model takes tensor\(string\)\[\?, 2\]"):
            packs([["a", "b", "c"]])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seq(map(int64,tensor(float)))", [{3: 0.5, -4: 1.0}, {}]),
        ("seq(map(string,tensor(float)))", [{"é": 1.0}]),
        ("map(string,tensor(string))", {"a": "b\0"}),
        ("map(int64,tensor(int64))", {1: 2}),
        ("seq(tensor(float))", [np.ones((2, 1), "f4"), np.ones((), "f4"), np.ones((0, 2), "f4")]),
        ("seq(tensor(bool))", [np.array([True, False])]),
        ("seq(tensor(string))", [strings("a"), strings()]),
        ("seq(tensor(float16))", []),
        ("optional(tensor(int8))", None),
        ("optional(seq(tensor(uint64)))", [np.array([2**64 - 1], "u8")]),
    ],
)
def test_other_values(name: str, value: Any) -> None:
    kind = ValueType(name)
    require_equal(kind.unpack(kind.pack(value)), value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seq(tensor(float))", np.ones(2, "f4")),
        ("map(int64,tensor(float))", [1]),
        ("map(int64,tensor(float))", {"a": 1.0}),
        ("tensor(float)", ["a"]),
    ],
)
def test_values_of_other_types(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match="it is "):
        ValueType(name).pack(value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "string",
        "tensor(bfloat16)",
        "map(float,tensor(float))",
        "map(int64,seq(tensor(float)))",
        "opaque(a)",
        "seq(tensor(float)",
        "seq(" * 1000 + "tensor(float)" + ")" * 1000,
    ],
    ids=lambda name: name[:20],
)
def test_types_without_a_packed_form(name: str) -> None:
    with pytest.raises(InvalidParameter, match="can't be packed"):
        ValueType(name)


def numbers(*values: int, text: bytes = b"") -> Array:
    return np.frombuffer(np.array(values, "<u8").tobytes() + text, np.uint8)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (numbers(), "ends after 0 bytes; 8 more are needed from 0 on"),
        (numbers(1)[:7], "ends after 7 bytes"),
        (numbers(33), "has 33 dimensions; use at most 32"),
        (numbers(2**64 - 1), "dimensions; use at most 32"),
        (numbers(1, 2**63), "dimension 0 is 9223372036854775808"),
        (numbers(2, 2**31 - 1, 2**31 - 1, 0), "overflows"),
        (numbers(1, 2**31 - 1, 0), "ends after 24 bytes"),
        (numbers(1, 2, 0, 8, 4, text=bytes(8)), "ends before it begins"),
        (numbers(1, 1, 1, 2, text=b"ab" + bytes(6)), "the first one doesn't begin at 0"),
        (numbers(1, 1, 0, 9, text=bytes(8)), "ends after 40 bytes; 9 more"),
        (numbers(1, 1, 0, 2**64 - 1, text=bytes(8)), "ends after 40 bytes"),
        (numbers(1, 1, 0, 2, text=b"ab"), "ends after 34 bytes"),
        (numbers(1, 1, 0, 1, text=b"\xff" + bytes(7)), "a string is not in UTF-8: invalid start byte"),
        (numbers(1, 2, 0, 1, 2, text="ü".encode() + bytes(6)), "a string is not in UTF-8: unexpected end of data"),
        (numbers(1, 1, 0, 3, text="\ud800".encode("utf-8", "surrogatepass") + bytes(5)), "a string is not in UTF-8"),
        (numbers(1, 0, 0, 0), "8 bytes follow the packed value"),
    ],
)
def test_bytes_that_are_no_strings(packed: Array, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        ANY.unpack(packed)


@pytest.mark.parametrize(
    ("name", "packed", "said"),
    [
        ("seq(tensor(float))", numbers(2**60), "the sequence has 1152921504606846976 values in 0 bytes"),
        ("seq(tensor(float))", numbers(2, 0, 0), "ends after 24 bytes"),
        ("map(int64,tensor(float))", numbers(1, 1, 7, 1, 0), r"has keys of the shape \(1,\), and values of \(0,\)"),
        ("map(int64,tensor(float))", numbers(0, 7, 0, 7), r"has keys of the shape \(\)"),
        ("optional(tensor(float))", numbers(2), "begins with 2; use 0 or 1"),
    ],
)
def test_bytes_that_are_no_other_values(name: str, packed: Array, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        ValueType(name).unpack(packed)


@given(
    data=st.one_of(
        st.binary(max_size=80),
        st.lists(st.one_of(st.integers(0, 4), st.integers(0, 2**64 - 1)), max_size=10).map(
            lambda n: bytes(numbers(*n))
        ),
    ),
    name=st.sampled_from([STRINGS, "seq(map(string,tensor(float)))", "seq(tensor(int64))", "optional(tensor(bool))"]),
)
def test_any_bytes_are_a_value_or_refused(data: bytes, name: str) -> None:
    kind = ValueType(name)
    try:
        value = kind.unpack(np.frombuffer(data, np.uint8))
    except InvalidParameter:
        return
    packed = kind.pack(value)
    require_equal(kind.pack(kind.unpack(packed)).tolist(), packed.tolist())


@pytest.mark.parametrize("shape", [None, (), (-1, 2)])
def test_specs_in_messages_and_files(shape: tuple[int, ...] | None) -> None:
    spec = PackedSpec.of(ValueType(STRINGS, shape), "words")
    assert wire.end_spec(wire.tensor_message(spec)) == spec
    assert read_end_spec(described_spec(spec)) == spec


def test_a_model_of_operators_has_no_strings() -> None:
    message = wire.tensor_message(PackedSpec.of(ValueType(STRINGS, (2,)), "words"))
    with pytest.raises(Unsupported, match=r"it is tensor\(string\); operators of NNRt compute with tensors of numbers"):
        wire.tensor_spec(message)
