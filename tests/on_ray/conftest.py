"""Fixtures: one cluster for all tests of Ray, because it takes long to start."""

from collections.abc import Iterator
from typing import Any

import pytest
from waiting import until

from on_ray.clusters import DEVICES, cluster_of, daemons


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a daemon behind. Ray's own processes and threads belong to the shared cluster."""
    yield
    until(lambda: not daemons(), daemons)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with cluster_of(DEVICES) as cluster:
        yield cluster
