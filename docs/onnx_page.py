"""Write docs/onnx.md from the declarations: `make docs`. With --check, fail if the page is not what they say.

What is imported comes from `nnrt_client.onnx_import`, which operators there are from onnx, and how many of ONNX's node
tests pass from tests/onnx_import/node_tests.json.
"""

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx

from nnrt_client.onnx_import.operators.operator import LAST_OPSET, OPERATORS, OnnxOperator
from nnrt_client.onnx_import.unmapped import reason_of

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "onnx.md"
NODE_TESTS = DOCS.parent / "tests/onnx_import/node_tests.json"
PROGRAM_TESTS = DOCS.parent / "tests/onnx_import/program_node_tests.json"

INTRODUCTION = """\
# ONNX

<!-- Written by `make docs` from the declarations; `make docs-check` fails if it is out of date. -->

```python
from nnrt_client import from_onnx

model = from_onnx("resnet50.onnx", shapes={"data": (1, 3, 224, 224)})
```

`from_onnx` makes a finished `Model` of an ONNX file. It needs the extra `nnrt[onnx]`.

- Operator sets 7 and later. Inputs and outputs keep their names, and images their layout NCHW.
- Dimensions that the file does not fix are -1, unless `shapes` does; so are those that it says are below 0.
- `constants={"sr": 16000}` freezes inputs that are always the same. They are no inputs of the model then, and what
  follows from them is computed at import; so is an If whose condition follows from them, or from dimensions. `load`
  takes `constants` too, also for saved models.
- What can be computed at import is: constants are folded, and so is arithmetic on shapes, of which each dimension may
  be unknown. Only what is then still not known is computed in a run: sizes, positions, axes, borders, steps, as long as
  the rank of each result follows without them.
- Relu and Clip(0, 6) become part of the operation before them. Operators between DequantizeLinear and QuantizeLinear
  become operations on quantized tensors; these round halves away from zero, ONNX to even.
- What ONNX Runtime's own tools save comes in as well: quantized operators and dynamic quantization, and what its
  optimizers put in place of other operators, up to level "extended". Integers between quantized operators stay
  quantized tensors, whatever moves them.
- Functions of the model, and operators that ONNX defines by others, are replaced by their bodies.
- External data are read from the directory of the model, and nowhere else.
- A model that can't be imported raises one `Unsupported`, which lists every node that is in the way, with the reason.
  Nothing is uploaded before.

Not imported: loops, branches whose condition only a run knows (the error says which input to freeze or to fix), GRU and
RNN of as many steps as only a run knows (each becomes operations, at most 1000), sequences, optional values, texts,
random numbers, training, classical machine learning, data types that NNRt doesn't have (BFLOAT16, FLOAT8, INT4 and the
like), tensors without elements, images of three dimensions.
`load(..., fallback="cpu")` runs models all the same that have such parts: [partition.md](partition.md).
"""

AS_IT_IS = """\
## As it is

What can't be said in NNRt's operators a device can run that takes ONNX files themselves: the daemons of ONNX Runtime
do, where `--accept-programs` lets them ([ADR 9](adr/0009-programs.md)). `load` does so of itself:

```python
session = load("detector.onnx", "127.0.0.1:50051")
session.way  # Way.PROGRAM
session.report.passed_over  # {Way.OPERATORS: "'detector.onnx': 1 part of it can't be imported: ..."}
```

A decoder whose cache comes back longer goes as it is even where operators could say it, if the device takes such files:
each of its runs has shapes of its own, and ONNX Runtime runs them faster so. The report says that, too. `float16=` and
`batching=` have it go as operators.

`ways=` sets which ways are tried, in which order: `("operators",)` for a model that is to run on every device,
`("program", "operators")` for what ONNX Runtime itself makes of the file. Then any operator and any dynamic shape goes
that the daemon's ONNX Runtime has, in the data types that the file has (`float16=` is for operators). Inputs and
outputs must be tensors of NNRt's data types. Weights are uploaded by their content, once; where the daemon has a
store, not even that.
"""


def page() -> str:
    kept = json.loads(NODE_TESTS.read_text())
    counts = (
        f"Of the {kept['all']} node tests of onnx {kept['onnx']}, {kept['mapped']} are imported, and of these"
        f" {kept['passing']} pass on the\nreference backend and {kept['passing on ONNX Runtime']} on ONNX Runtime."
    )
    programs = json.loads(PROGRAM_TESTS.read_text())
    lines = [
        INTRODUCTION,
        f"{counts} [node_tests.json](../tests/onnx_import/node_tests.json) says of each other",
        "one why it doesn't.",
        "",
        AS_IT_IS,
        f"Of the {programs['all']} node tests {programs['passing']} pass in this way on ONNX Runtime, and none differs",
        "from what that gives in process;",
        "[program_node_tests.json](../tests/onnx_import/program_node_tests.json) says why the others don't run.",
        "",
        "## Operators",
        "",
        "| operator | operator sets | becomes | family |",
        "|---|---|---|---|",
        *(row for name, versions in sorted(_mapped()) for row in _rows(name, versions)),
        "",
        "## By their bodies",
        "",
        "ONNX defines these by other operators, which are imported in their place as far as they can be.",
        "",
        ", ".join(sorted(_by_body())) + ".",
        "",
        "## Not imported",
        "",
        "| operators | reason |",
        "|---|---|",
        *_unmapped(),
    ]
    return "\n".join(lines) + "\n"


def _mapped() -> Iterator[tuple[str, list[OnnxOperator]]]:
    for (domain, name), versions in OPERATORS.items():
        yield f"{domain}.{name}" if domain else name, sorted(versions, key=lambda version: version.since)


def _rows(name: str, versions: list[OnnxOperator]) -> Iterator[str]:
    """A row for each way, forms of a signature that become the same are one."""
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
    """The first operator set of each operator."""
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def _schemas() -> Iterator[onnx.defs.OpSchema]:
    """The operators of ONNX that are not declared, as the newest operator set has them."""
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


def main() -> None:
    kept = json.loads(NODE_TESTS.read_text())["onnx"]
    if kept != onnx.__version__:
        # Another onnx has other operators; the page is of the one that the node tests are kept for.
        sys.stderr.write(f"docs/onnx.md is of onnx {kept}, here is {onnx.__version__}; left as it is\n")
        return
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        raise SystemExit("docs/onnx.md is not what the declarations say; run `make docs`")


if __name__ == "__main__":
    main()
