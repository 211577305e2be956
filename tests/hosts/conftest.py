"""Fixtures: hosts in network namespaces, and applications on them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hosts.network import Host, Network, require_namespaces
from nnrt_hdi.closable import Closable

_PROGRAM = Path(__file__).with_name("application.py")
_END_S = 60.0


@pytest.fixture
def network() -> Iterator[Network]:
    require_namespaces()
    with Network() as network:
        yield network


class RemoteApplication(Closable):
    """Process of application.py on a host."""

    def __init__(self, host: Host, addresses: list[str], settings: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [*host.through, sys.executable, str(_PROGRAM), json.dumps(settings), *addresses],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_PROGRAM.parents[1])},
        )

    def do(self, *words: object) -> Any:
        """Send a command, and return its answer."""
        self.begin(*words)
        return self.answer()

    def begin(self, *words: object) -> None:
        """Send a command without waiting for the answer."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Return the next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the application ended"
        answer = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        """Close the application's standard input, and wait until it ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(_END_S) == 0
        finally:
            self._process.kill()
            self._process.wait(_END_S)
            self._process.stdout.close()


StartApplication = Callable[..., RemoteApplication]


@pytest.fixture
def application(network: Network) -> Iterator[StartApplication]:
    """Yield a function that starts applications; end them after the test."""
    with ExitStack() as stack:

        def start(host: Host, *addresses: str, **settings: Any) -> RemoteApplication:
            return stack.enter_context(RemoteApplication(host, list(addresses), settings))

        yield start
