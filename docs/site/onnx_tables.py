"""Tables of ONNX's operators: what of them is imported, and what becomes of it.

What is imported comes from `nnrt_client.onnx_import`, which operators there are from onnx, and how many of ONNX's node
tests pass from tests/onnx_import/node_tests.json.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx

from nnrt_client.onnx_import.operators.operator import LAST_OPSET, OPERATORS, OnnxOperator
from nnrt_client.onnx_import.unmapped import reason_of

ROOT = Path(__file__).resolve().parents[2]
NODE_TESTS = ROOT / "tests/onnx_import/node_tests.json"
PROGRAM_TESTS = ROOT / "tests/onnx_import/program_node_tests.json"


def counts() -> str:
    """Return how many of ONNX's node tests pass, as NNRt's operators and as the file is."""
    imported, programs = json.loads(NODE_TESTS.read_text()), json.loads(PROGRAM_TESTS.read_text())
    rows = (
        ("imported as NNRt's operators", imported["mapped"], NODE_TESTS),
        ("right on the reference backend", imported["passing"], NODE_TESTS),
        ("right on the ONNX Runtime backend", imported["passing on ONNX Runtime"], NODE_TESTS),
        ("right where the ONNX Runtime backend gets the file itself", programs["passing"], PROGRAM_TESTS),
    )
    lines = [
        f"| of the {imported['all']} node tests of onnx {imported['onnx']} | tests | why the others don't |",
        "|---|---|---|",
        *(f"| {what} | {count} | `{path.relative_to(ROOT)}` |" for what, count, path in rows),
    ]
    return "\n".join(lines)


def operators() -> str:
    """Return the operators of ONNX that are imported, and what each becomes."""
    rows = (row for name, versions in sorted(_mapped()) for row in _rows(name, versions))
    return "\n".join(["| operator | operator sets | becomes | family |", "|---|---|---|---|", *rows])


def by_body() -> str:
    """Return the names of the operators that ONNX defines by other operators, which are imported in their place."""
    return ", ".join(sorted(_by_body())) + "."


def not_imported() -> str:
    """Return the operators that are not imported, with the reason."""
    return "\n".join(["| operators | reason |", "|---|---|", *_unmapped()])


def _mapped() -> Iterator[tuple[str, list[OnnxOperator]]]:
    for (domain, name), versions in OPERATORS.items():
        yield f"{domain}.{name}" if domain else name, sorted(versions, key=lambda version: version.since)


def _rows(name: str, versions: list[OnnxOperator]) -> Iterator[str]:
    """Return a row for each way; forms of a signature that become the same are one."""
    first = max(versions[0].since, _introduced().get(name, 0))
    for version, following in zip(versions, [*versions[1:], None], strict=True):
        if following is not None and following.doc == version.doc and following.since == version.until + 1:
            continue
        until = "" if version.until == LAST_OPSET else str(version.until)
        sets = str(first) if until == str(first) else f"{first}..{until}"
        how = version.doc.replace("|", "\\|")
        yield f"| {name} | {sets} | {how} | {version.family} |"
        first = version.until + 1


@cache
def _introduced() -> dict[str, int]:
    """Return the first operator set of each operator."""
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def _schemas() -> Iterator[onnx.defs.OpSchema]:
    """Return the operators of ONNX that are not supported, as the newest operator set has them."""
    for schema in onnx.defs.get_all_schemas():
        if schema.domain == "" and not schema.deprecated and ("", schema.name) not in OPERATORS:
            yield schema


def _has_body(schema: onnx.defs.OpSchema) -> bool:
    return bool(getattr(schema, "has_function", False) or getattr(schema, "has_context_dependent_function", False))


def _by_body() -> Iterator[str]:
    yield from (schema.name for schema in _schemas() if _has_body(schema))


def _unmapped() -> Iterator[str]:
    newest = onnx.defs.onnx_opset_version()
    reasons: dict[str, list[str]] = {}
    for schema in _schemas():
        if not _has_body(schema):
            reasons.setdefault(reason_of("", schema.name, newest), []).append(schema.name)
    for reason, names in sorted(reasons.items()):
        yield f"| {', '.join(sorted(names))} | {reason} |"
