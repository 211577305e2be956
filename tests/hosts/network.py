"""Hosts as network namespaces, connected by a bridge that nothing else is on."""

import itertools
import os
import shutil
import subprocess
from typing import Any

import pytest
from daemon_process import DaemonProcess

from nnrt_hdi.closable import Closable

_SUBNET = "10.77.0"
_numbers = itertools.count()


def require_namespaces() -> None:
    """Skip the test if this machine can't create network namespaces."""
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            pytest.skip(f"needs the command {command}, to make hosts")
    name = f"nnrt-{os.getpid()}-probe"
    result = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30)
    if result.returncode:
        pytest.skip(f"hosts can't be made here: {result.stderr.strip()}")
    _ip("netns", "del", name)


class Host:
    """Host on the bridge. Created by `Network.host`."""

    def __init__(self, namespace: str, switch: str, port: str, address: str) -> None:
        self.address = address
        # Command that executes the command after it on the host.
        self.through = ("ip", "netns", "exec", namespace)
        self._namespace = namespace
        self._switch = switch
        self._port = port

    def daemon(self, *arguments: str, port: int = 0) -> DaemonProcess:
        """Start a daemon on the host, reachable from all hosts."""
        return DaemonProcess("--insecure", *arguments, listen=f"{self.address}:{port}", through=self.through)

    def cut_off(self) -> None:
        """Drop all packets from and to the host, silently."""
        self._of_switch("link", "set", self._port, "down")

    def join(self) -> None:
        """Connect the host again."""
        self._of_switch("link", "set", self._port, "up")

    def slow_down(self, rate: str) -> None:
        """Limit the host's rate in both directions, as tc writes it: 2mbit."""
        limit = ("tbf", "rate", rate, "burst", "16kb", "latency", "200ms")
        subprocess.run(
            ["tc", "-n", self._switch, "qdisc", "replace", "dev", self._port, "root", *limit], check=True, timeout=30
        )
        subprocess.run(
            ["tc", "-n", self._namespace, "qdisc", "replace", "dev", "uplink", "root", *limit], check=True, timeout=30
        )

    def _of_switch(self, *arguments: str) -> None:
        _ip("-n", self._switch, *arguments)


class Network(Closable):
    """Hosts that reach each other, but nothing else."""

    def __init__(self) -> None:
        self._prefix = f"nnrt-{os.getpid()}-{next(_numbers)}"
        self._namespaces: list[str] = []
        self._switch = self._namespace("switch")
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")

    def host(self) -> Host:
        """Add a host."""
        number = len(self._namespaces)
        namespace, port, address = self._namespace(f"host{number}"), f"port{number}", f"{_SUBNET}.{number}"
        _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "uplink", "netns", namespace)
        _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "uplink")
        for interface in ("lo", "uplink"):
            _ip("-n", namespace, "link", "set", interface, "up")
        return Host(namespace, self._switch, port, address)

    def close(self) -> None:
        """Delete the hosts. Their processes must have ended before."""
        while self._namespaces:
            _ip("netns", "del", self._namespaces.pop())

    def _namespace(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        return namespace


def _ip(*arguments: str) -> Any:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)
