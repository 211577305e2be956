"""`pytest --quick`: the tests that catch most, for those who edit (`make quick`).

Of each test function it runs one case, or one per operator and per C function where a case stands for one. It leaves
out those that start daemons of their own, which is what tests of deaths, limits and lost connections do, and those
that say that they take their time: `@pytest.mark.slow`.
"""

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the tests that catch most, in well under a minute")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    first: dict[object, pytest.Item] = {}
    for item in items:
        if not _takes_its_time(item):
            first.setdefault(_what_it_is_about(item), item)
    kept = list(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _takes_its_time(item: pytest.Item) -> bool:
    return "start_daemon" in getattr(item, "fixturenames", ()) or item.get_closest_marker("slow") is not None


def _what_it_is_about(item: pytest.Item) -> object:
    """Cases of which this is equal are alike."""
    callspec = getattr(item, "callspec", None)
    subjects = [_subject(value) for value in callspec.params.values()] if callspec else []
    return item.path, getattr(item, "originalname", item.name), *filter(None, subjects)


def _subject(value: Any) -> str:
    """The operator or the C function that a parameter stands for."""
    for name in ("node_type", "op_type", "function"):
        if hasattr(value, name):
            return str(getattr(value, name))
    return ""
