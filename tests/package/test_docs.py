"""The documents say what is so."""

import re
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from daemon_process import DaemonProcess
from onnx import parser
from source_files import ROOT, source_files

from nnrt_device_service.settings import Settings

PAGES = sorted(path for path in source_files() if path.suffix == ".md")
POOLING = """
<ir_version: 8, opset_import: ["": 17]>
pooling (float[1, 3, 224, 224] image) => (float[1, 3, 1, 1] means) { means = GlobalAveragePool(image) }
"""


PICTURES = sorted((ROOT / "docs").rglob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_pictures_stand_alone(picture: Path) -> None:
    """They hold no script, and nothing from elsewhere."""
    drawing = picture.read_text()
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  # It is our own.
    assert not re.search(r"@import|@font-face|url\((?!#)|href=\"(?!#)|<script", drawing)


def settings_table() -> str:
    """The table in docs/daemon.md. To renew it, paste what this returns."""
    rows = ["| flag | environment | default | meaning |", "|---|---|---|---|"]
    for entry in fields(Settings):
        default = " ".join(entry.default) if isinstance(entry.default, tuple) else entry.default
        shown = f"`{default}`" if default not in ("", False) else ""
        flag, variable = entry.name.replace("_", "-"), entry.name.upper()
        rows.append(f"| `--{flag}` | `NNRT_DEVICE_{variable}` | {shown} | {entry.metadata['help']} |")
    return "\n".join(rows)


def test_daemon_page_lists_every_setting() -> None:
    assert settings_table() in (ROOT / "docs/daemon.md").read_text()


def run_readme_example(at: int, daemon: DaemonProcess) -> None:
    """An example as it stands, but for the address."""
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[at]
    exec(compile(example.replace("127.0.0.1:50051", daemon.address), "README.md", "exec"), {})


def test_readme_builds_a_model(shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    run_readme_example(1, shared_daemon)
    assert capsys.readouterr().out == "(4, 14, 14, 8) (1, 14, 14, 8)\n"


def test_readme_runs_an_onnx_file(
    onnxruntime_daemon: DaemonProcess,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    onnx.save(parser.parse_model(POOLING), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run_readme_example(0, onnxruntime_daemon)
    assert capsys.readouterr().out == "{'means': (1, 3, 1, 1)}\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_example_is_listed() -> None:
    """Where readers look first: in the list of examples, which README leads to."""
    listed = (ROOT / "examples/README.md").read_text()
    examples = {
        path.relative_to(ROOT / "examples").parts[0]
        for path in source_files()
        if path.is_relative_to(ROOT / "examples") and path.name != "README.md"
    }
    assert {"c", "oh_nn_add.py"} <= examples
    assert [name for name in sorted(examples) if f"]({name})" not in listed] == []
    assert "](examples/README.md)" in (ROOT / "README.md").read_text()
