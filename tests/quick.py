"""`pytest --quick`: the tests that catch most, for those who edit (`make quick`).

Of each test function it runs one case, or one per operator and per C function where a case stands for one. It leaves
out those that start daemons of their own, which is what tests of deaths, limits and lost connections do, and those
that say that they take their time: `@pytest.mark.slow`. Of random examples it takes fewer.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from part import calls_of, subject_of

# Of those that a test of properties tries; 100 otherwise.
_EXAMPLES = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the tests that catch most, in well under a minute")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.register_profile("quick", settings.default, max_examples=_EXAMPLES)
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Leave out cases before they become items, of which there are ten times as many."""
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
        config.hook.pytest_deselected(items=[item for item in items if _takes_its_time(item)])
        items[:] = [item for item in items if not _takes_its_time(item)]


def _takes_its_time(item: pytest.Item) -> bool:
    return "start_daemon" in getattr(item, "fixturenames", ()) or item.get_closest_marker("slow") is not None
