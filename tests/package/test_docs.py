"""The documents say what is so."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from source_files import ROOT, source_files

PAGES = sorted(path for path in source_files() if path.suffix == ".md")
PICTURES = sorted((ROOT / "docs").rglob("*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_pictures_stand_alone(picture: Path) -> None:
    """They hold no script, and nothing from elsewhere."""
    drawing = picture.read_text()
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  # It is our own.
    assert not re.search(r"@import|@font-face|url\((?!#)|href=\"(?!#)|<script", drawing)


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
