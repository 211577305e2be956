"""An actor that has one daemon."""

import os
from collections.abc import Sequence
from typing import Literal

import ray.util

from nnrt_client.ray.device_process import ON_THIS_HOST, DeviceProcess
from nnrt_client.resolvers.ray import Where

Listen = Literal["host", "network"]


class DeviceActor:
    """Owns a daemon. They end together: when the daemon does, Ray starts the actor anew, there or on another node.

    Made by `start`, or by `ray.remote(DeviceActor)`.
    """

    def __init__(self, serve: Sequence[str], listen: Listen = "host") -> None:
        """Raises UnavailableDevice where the daemon doesn't start."""
        self._host = ray.util.get_node_ip_address()
        self._listen = listen
        address = ON_THIS_HOST if listen == "host" else _addressed(self._host)
        self._process = DeviceProcess(serve, address, ended=_end_too)

    def where(self) -> Where:
        """Where the daemon is."""
        return Where(self._process.address, self._host, self._listen == "host")

    def stop(self) -> None:
        """Have the daemon finish its runs and end."""
        self._process.close()


def _addressed(host: str) -> str:
    return f"[{host}]:0" if ":" in host else f"{host}:0"


def _end_too(code: int) -> None:
    """End this process as one that failed, so that Ray starts the actor anew."""
    os._exit(code or 1)
