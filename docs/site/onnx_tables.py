"""Tables of ONNX's operators: which are imported, as which NNRt operators, and which are not.

The importer's declarations come from `nnrt_client.onnx_import`, the list of all operators from onnx, and the counts of
passing node tests from the JSON files in tests/onnx_import.
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
    """Return a table of how many of ONNX's node tests pass, imported as NNRt's operators and run as files."""
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
    """Return a table of the ONNX operators that are imported, and of the NNRt operators that they become."""
    rows = (row for name, versions in sorted(_mapped()) for row in _rows(name, versions))
    return "\n".join(["| operator | operator sets | becomes | family |", "|---|---|---|---|", *rows])


def by_body() -> str:
    """Return the names of the ONNX operators that are imported by their definition in terms of other operators."""
    return ", ".join(sorted(_by_body())) + "."


def not_imported() -> str:
    """Return a table of the ONNX operators that are not imported, with the reasons."""
    return "\n".join(["| operators | reason |", "|---|---|", *_unmapped()])


def _mapped() -> Iterator[tuple[str, list[OnnxOperator]]]:
    for (domain, name), versions in OPERATORS.items():
        yield f"{domain}.{name}" if domain else name, sorted(versions, key=lambda version: version.since)


def _rows(name: str, versions: list[OnnxOperator]) -> Iterator[str]:
    """Yield the table rows of an operator. Consecutive versions that are imported in the same way share one row."""
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
    """Return the first operator set that has each operator, by name."""
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def _schemas() -> Iterator[onnx.defs.OpSchema]:
    """Yield the operators of the newest ONNX operator set that the importer doesn't declare."""
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
