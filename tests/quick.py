"""Plugin for `pytest --quick` (`make quick`): the most useful tests, in well under a minute.

It runs one case of each test function, or one per operator or C function if the cases are about these. It skips tests
that start their own daemons and servers, such as tests of crashes, limits and lost connections, and tests marked
`slow`. Property tests try fewer examples.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from part import calls_of, subject_of

# Number of examples of a property test, instead of 100.
_EXAMPLES = 20
# Fixtures with which tests start daemons and servers of their own.
_STARTING = frozenset({"start_daemon", "start_server"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the tests that catch most, in well under a minute")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.register_profile("quick", settings.default, max_examples=_EXAMPLES)
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Remove most cases before they become items, which makes collection faster."""
    yield
    if metafunc.config.getoption("--quick"):
        first: dict[object, Any] = {}
        calls = calls_of(metafunc)
        for call in calls:
            if not any(mark.name == "slow" for mark in call.marks):
                first.setdefault(tuple(filter(None, map(subject_of, call.params.values()))), call)
        calls[:] = list(first.values()) or calls[:1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if _is_slow(item)])
        items[:] = [item for item in items if not _is_slow(item)]


def _is_slow(item: pytest.Item) -> bool:
    is_starting = not _STARTING.isdisjoint(getattr(item, "fixturenames", ()))
    return is_starting or item.get_closest_marker("slow") is not None
