"""What the headers say of each function, against its signature and the rows of the specification."""

import re

import pytest
from oh_nn.spec import ROWS

from nnrt_client.c import INCLUDE
from nnrt_client.c.functions import SIGNATURES, Signature
from nnrt_client.oh_nn import OH_NN_ReturnCode

HEADERS = [
    (INCLUDE / "neural_network_runtime" / f"{name}.h").read_text()
    for name in ("neural_network_core", "neural_network_runtime")
]
# The comment before a declaration, and the declaration without its line breaks.
DECLARED = {
    match[3]: (" ".join(match[1].replace("\n *", " ").split()), " ".join(match[2].split()))
    for text in HEADERS
    for match in re.finditer(r"/\*\*((?:(?!\*/).)*)\*/\n([^;/]*?(OH_NN\w+)\([^;]*\));", text, re.DOTALL)
}
# Codes that the begin of the header tells of all functions.
OF_ALL = {"OH_NN_SUCCESS", "OH_NN_INVALID_PARAMETER", "OH_NN_MEMORY_ERROR", "OH_NN_FAILED"}
# Codes about connections and slow runs, for which the rows have rules of their own.
OF_CONNECTIONS = {"OH_NN_CONNECTION_EXCEPTION", "OH_NN_TIMEOUT", "OH_NN_UNAVAILABLE_DEVICE"}

each_function = pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)


def codes(name: str) -> set[str]:
    """The codes that the comment of a function names, and those of the functions that it refers to."""
    comment = DECLARED[name][0]
    told = set(re.findall(r"OH_NN_[A-Z_]+\b", comment))
    for other in re.findall(r"as of (OH_NN[A-Z]\w+)", comment):
        told |= codes(other)
    return told & {f"OH_NN_{code.name}" for code in OH_NN_ReturnCode}


def codes_in_rows(name: str) -> set[str]:
    return {
        f"OH_NN_{row.expected.name}"
        for row in ROWS.values()
        if row.function == name and isinstance(row.expected, OH_NN_ReturnCode)
    }


def test_there_are_no_others() -> None:
    assert set(DECLARED) == {signature.name for signature in SIGNATURES}


@each_function
def test_a_function_is_documented(signature: Signature) -> None:
    comment, declaration = DECLARED[signature.name]
    assert re.search(r"@since (9|11)\b", comment)
    for parameter in re.findall(r"@param (\w+)", comment):
        assert re.search(rf"\b{parameter}\b", declaration), parameter


@each_function
def test_each_code_of_a_row_is_told(signature: Signature) -> None:
    assert codes_in_rows(signature.name) - {"OH_NN_SUCCESS", "OH_NN_INVALID_PARAMETER"} <= codes(signature.name)


@each_function
def test_each_code_that_is_told_is_one_of_a_row(signature: Signature) -> None:
    """Of this function, or of one that its comment names."""
    comment = DECLARED[signature.name][0]
    named = {signature.name, *re.findall(r"\bOH_NN[A-Z]\w+", comment)}
    known = set().union(OF_ALL, OF_CONNECTIONS, *map(codes_in_rows, named))
    assert codes(signature.name) <= known


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("CONV2D_PAD_MODE", "pad_mode, 1 INT8 (0 SAME, 1 VALID)"),
        ("AVG_POOL_ROUND_MODE", "round_mode, 1 INT32 (0 FLOOR, 1 CEIL)"),
        ("PAD_PADDING_MODE", "padding_mode, 1 INT32 (0 CONSTANT, 1 REFLECT, 2 SYMMETRIC, 3 RESERVED)"),
    ],
)
def test_a_parameter_of_an_enumeration_tells_its_numbers(name: str, numbers: str) -> None:
    header = (INCLUDE / "neural_network_runtime" / "neural_network_runtime_type.h").read_text()
    comments = re.findall(rf"/\*\*((?:(?!\*/).)*)\*/\s+OH_NN_{name} =", header, re.DOTALL)
    assert [numbers in " ".join(comment.replace("\n     *", " ").split()) for comment in comments] == [True]
