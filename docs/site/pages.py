"""Sphinx extension that generates pages and tables from declarations, and includes files from outside of `docs/`.

In a page the extension replaces a line `<!-- generate: NAME -->` by the table that `TABLES` has for the name, and a
line `<!-- include: PATH -->` by that file of the repository. A line `<!-- pages: GLOB -->` adds pages to the navigation
below the page; the lists under "All pages" in index.md are the top of the navigation.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.util.logging import getLogger

SITE = Path(__file__).resolve().parent
DOCS, ROOT = SITE.parent, SITE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # For the operators' samples.

import command_tables  # noqa: E402  (the path comes first)
import function_tables  # noqa: E402
import metric_tables  # noqa: E402
import onnx_tables  # noqa: E402
import operator_pages  # noqa: E402
import setting_tables  # noqa: E402

TABLES: dict[str, Callable[[], str]] = {
    "c-functions": function_tables.tables,
    "client-commands": command_tables.client_commands,
    "client-settings": setting_tables.client_settings,
    "daemon-commands": command_tables.daemon_commands,
    "daemon-settings": setting_tables.daemon_settings,
    "metrics": metric_tables.metrics,
    "onnx-by-body": onnx_tables.by_body,
    "onnx-counts": onnx_tables.counts,
    "onnx-not-imported": onnx_tables.not_imported,
    "onnx-operators": onnx_tables.operators,
    "operator-enums": operator_pages.enums,
    "operator-index": operator_pages.index,
}
_log = getLogger(__name__)

OPERATORS = DOCS / "reference/operators"
# A line in italics after the mark is for readers of the file itself.
_GENERATE = re.compile(r"^<!-- generate: ([\w-]+) -->(?:\n\*.+\*)?$", re.MULTILINE)
_INCLUDE = re.compile(r"^<!-- include: (\S+) -->(?:\n\*.+\*)?$", re.MULTILINE)
_PAGES = re.compile(r"^<!-- pages: (\S+) -->$", re.MULTILINE)
_SECTION = re.compile(r"^### (.+)\n\n((?:- .+\n)+)", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def write_operator_pages(app: Any) -> None:
    """Write the pages of the operator families, except those that are unchanged."""
    OPERATORS.mkdir(exist_ok=True)
    for family, text in operator_pages.pages().items():
        page = OPERATORS / f"{family}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def expand_marks(app: Any, name: str, source: list[str]) -> None:
    """Replace the marks of a page by tables, files and navigation, and its links to files outside the site by paths."""
    text = _INCLUDE.sub(lambda mark: _included(ROOT / mark[1], name), source[0])
    text = _PAGES.sub(lambda mark: _toctree("glob", [mark[1]]), text)
    if name == app.config.root_doc:
        text += _navigation(text.partition("\n## All pages\n")[2])
    text = _GENERATE.sub(lambda mark: _table(mark[1], name), text)
    source[0] = _LINK.sub(lambda link: _link(link, name), text)


def _navigation(lists: str) -> str:
    """Return the navigation of the site, with a section for each list of links."""
    return "".join(
        _toctree(f"caption: {title}", [f"{link[2]} <{link[3].removesuffix('.md')}>" for link in _LINK.finditer(links)])
        for title, links in _SECTION.findall(lists)
    )


def _toctree(option: str, pages: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":{option}:", "", *pages, "```", ""])


def _table(table: str, name: str) -> str:
    if table not in TABLES:
        _log.warning("no table is named %r; there are %s", table, ", ".join(sorted(TABLES)), location=name)
        return ""
    return TABLES[table]()


def _included(file: Path, name: str) -> str:
    """Return a file's text, with its links relative to the page that includes the file."""
    folder = (DOCS / name).parent

    def moved(link: re.Match[str]) -> str:
        return f"{link[1]}[{link[2]}]({os.path.relpath(file.parent / link[3], folder)}{link[4] or ''})"

    return _LINK.sub(moved, file.read_text())


def _link(link: re.Match[str], name: str) -> str:
    """Return a link to a page of the site unchanged, and a link to another file as its path in the repository."""
    found = ((DOCS / name).parent / link[3]).resolve()
    if not found.exists():
        _log.warning("the link %r leads to no file of the repository", link[3], location=name)
        return link[2]
    if found.is_relative_to(DOCS) and found.is_file():
        return link[0]
    path = found.relative_to(ROOT)
    return f"`{path}`" if link[2].strip("`") in (str(path), path.name) else f"{link[2]} (`{path}`)"


def setup(app: Any) -> dict[str, bool]:
    """Register the functions that Sphinx calls before the build, and when it has read a page."""
    app.connect("builder-inited", write_operator_pages)
    app.connect("source-read", expand_marks)
    return {"parallel_read_safe": True}
