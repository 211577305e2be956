"""What the documents say is so."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from nnrt_device_service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in ROOT.glob("**/*.md") if not any(part.startswith(".") for part in path.parts))


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


def test_readme_example_runs(shared_daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """The example as it stands, but for the address."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(example.replace("127.0.0.1:50051", shared_daemon.address), "README.md", "exec"), {})
    assert capsys.readouterr().out == "(4, 14, 14, 8) (1, 14, 14, 8)\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
