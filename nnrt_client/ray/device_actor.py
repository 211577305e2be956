"""Ray actor that runs one daemon."""

import os
from collections.abc import Sequence
from typing import Literal

import ray.util

from nnrt_client.ray.device_process import ON_THIS_HOST, DeviceProcess
from nnrt_client.resolvers.ray import DaemonLocation

Listen = Literal["host", "network"]


class DeviceActor:
    """Ray actor that runs a daemon. Made by `start`, or by `ray.remote(DeviceActor)`.

    The actor and its daemon end together. When the daemon has ended, Ray restarts the actor, on its node or on another.

    Args:
        serve: Arguments of `nnrt-device serve`.
        listen: "host" to be reached only by processes on this host, "network" by all that can reach the node.

    Raises:
        UnavailableDevice: The daemon doesn't start.
    """

    def __init__(self, serve: Sequence[str], listen: Listen = "host") -> None:
        self._host = ray.util.get_node_ip_address()
        self._listen = listen
        address = ON_THIS_HOST if listen == "host" else _listen_address(self._host)
        self._process = DeviceProcess(serve, address, ended=_end_process)

    def where(self) -> DaemonLocation:
        """Return where the daemon is."""
        return DaemonLocation(self._process.address, self._host, self._listen == "host")

    def stop(self) -> None:
        """Let the daemon finish its runs and end."""
        self._process.close()


def _listen_address(host: str) -> str:
    return f"[{host}]:0" if ":" in host else f"{host}:0"


def _end_process(code: int) -> None:
    """End this process with an error, so that Ray restarts the actor."""
    os._exit(code or 1)
