"""The page for vendors shows code that runs, and describes the interface as it is."""

import ast
import contextlib
import importlib
import inspect
import io
import re
import textwrap
from dataclasses import fields
from typing import Any

import pytest
from source_files import ROOT

from nnrt_hdi.backend import Backend, Capabilities, DeviceInfo, ModelConfig, PreparedModel
from nnrt_hdi.device_buffers import DeviceBuffer

PAGE = (ROOT / "docs/backends.md").read_text()


def section(title: str) -> str:
    """What stands under a heading."""
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def listed(text: str) -> list[str]:
    """The first cells of a table's rows, each a name or several."""
    cells = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)[(`]", cell)]


def named(path: str) -> Any:
    """What a dotted path names."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(".".join(parts[:end]))
            for part in parts[end:]:
                found = getattr(found, part)
            return found
    raise AssertionError(path)


def test_its_code_runs() -> None:
    """The blocks follow each other in one module, and print what the page says; those of a file stand in it."""
    printed, names = "", dict[str, Any]()
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        first, _, rest = block.partition("\n")
        if kind == "text":
            assert printed == block
        elif first.startswith("# ") and (ROOT / first[2:]).is_file():
            assert rest in (ROOT / first[2:]).read_text()
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, "docs/backends.md", "exec"), names)
            printed = out.getvalue()


@pytest.mark.parametrize("path", ["nnrt_hdi.graph.Graph", "nnrt_hdi.graph.Node", "nnrt_hdi.graph.Constant"])
def test_values_have_these_fields(path: str) -> None:
    assert listed(section(path.rpartition(".")[2])) == [field.name for field in fields(named(path))]


def test_tensors_have_these_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("TensorSpec"), re.MULTILINE)
    assert rows == [field.name for field in fields(named("nnrt_hdi.tensor.TensorSpec"))]


def signature(path: str) -> str:
    """The signature of what a path names, as its code spells it."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(named(path)))).body
    assert isinstance(function, ast.FunctionDef)
    assert function.returns is not None
    taken = ast.unparse(function.args).removeprefix("cls, ").replace("=", " = ")
    return f"({taken}) -> {ast.unparse(function.returns)}".replace("'", "")


def test_helpers_have_these_signatures() -> None:
    rows = re.findall(r"^\| `([\w.]+)(\(.*?)` \|", section("Helpers"), re.MULTILINE)
    assert len(rows) > 10
    said = {path: shown.replace(r"\|", "|") for path, shown in rows}
    assert {path: signature(path) for path in said} == said


@pytest.mark.parametrize("kind", [Backend, PreparedModel, DeviceBuffer])
def test_it_lists_the_whole_interface(kind: type) -> None:
    tables = re.findall(rf"^\| `{kind.__name__}` \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    declared = {*vars(kind), *kind.__annotations__} if "__annotations__" in vars(kind) else {*vars(kind)}
    assert {*listed("".join(tables))} - {kind.__name__} == {name for name in declared if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Capabilities, DeviceInfo, ModelConfig])
def test_it_names_every_setting(kind: Any) -> None:
    for field in fields(kind):
        assert re.search(rf"\b{field.name}\b", section("What it is asked")), field.name
