"""One cluster for all tests of Ray: it takes long to start."""

from collections.abc import Iterator
from typing import Any

import pytest
from waiting import until

from on_ray.clusters import DEVICES, cluster_of, daemons


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fails a test that leaves a daemon behind. (Nodes, and threads of Ray's, are the cluster's.)"""
    yield
    until(lambda: not daemons(), daemons)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with cluster_of(DEVICES) as cluster:
        yield cluster
