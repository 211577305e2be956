"""Ray cluster of several nodes, as processes on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Number of nodes with one device each, besides the head.
DEVICES = 2
_TESTS = Path(__file__).parents[1]
_STORE_BYTES = 80 << 20
# Environment variable of all processes that this process' cluster starts.
_MARK = "NNRT_TEST_CLUSTER"


@contextmanager
def cluster_of(devices: int) -> Iterator[Any]:
    """Start a cluster with `devices` nodes of one device each, and a head without a device."""
    import ray
    from ray.cluster_utils import Cluster

    # Daemons on the nodes find the backends of the tests.
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "RAY_USAGE_STATS_ENABLED", _MARK)}
    os.environ["PYTHONPATH"] = f"{_TESTS / 'plugins'}:{_TESTS}"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ[_MARK] = str(os.getpid())
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
        },
    )
    try:
        for _ in range(devices):
            add_node(cluster)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, logging_level="warning", log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def add_node(cluster: Any) -> Any:
    """Add a node with a device."""
    return cluster.add_node(
        num_cpus=1,
        resources={"nnrt_device": 1},
        object_store_memory=_STORE_BYTES,
    )


def daemons() -> dict[int, list[str]]:
    """Return the arguments of the running daemons that the cluster's actors have started, by process id."""
    mark = f"{_MARK}={os.getpid()}"
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # The process has just ended.
            arguments = (folder / "cmdline").read_text().split("\0")
            if "nnrt_device_service" in arguments and mark in (folder / "environ").read_text().split("\0"):
                found[int(folder.name)] = arguments
    return found
