"""Fixtures that compile C programs against the package's shared library, and run them as processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from nnrt_client.c import INCLUDE, LIB, LIBRARY

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0

Program = Callable[..., "subprocess.CompletedProcess[str]"]
Compiled = Callable[..., Path]


@pytest.fixture(scope="session")
def compiler() -> str:
    """Return the command of the C compiler; skip the test if there is none."""
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None:
        pytest.skip("no C compiler is here")
    assert LIBRARY.exists(), "install the package anew: it was installed where there was no C compiler"
    return found


@pytest.fixture(scope="session")
def compiled(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Return a function that compiles a source against the library, once, with warnings as errors."""
    folder, made = tmp_path_factory.mktemp("c"), dict[tuple[str, ...], Path]()

    def compiled_of(source: Path, *flags: str) -> Path:
        key = (str(source), *flags)
        if key not in made:
            made[key] = folder / f"{source.stem}-{len(made)}"
            command = [
                _compiler_of_cpp() if source.suffix == ".cpp" else compiler, *(flags or ("-std=gnu11",)), "-Wall",
                "-Wextra", "-Werror", f"-I{INCLUDE}", f"-I{REPOSITORY / 'examples' / 'c'}", str(source), f"-L{LIB}",
                f"-Wl,-rpath,{LIB}", "-lneural_network_runtime", "-lpthread", "-lm", "-ldl", "-o", str(made[key]),
            ]  # fmt: skip
            subprocess.run(command, check=True, timeout=DEADLINE_S)
        return made[key]

    return compiled_of


def _compiler_of_cpp() -> str:
    found = shutil.which(os.environ.get("CXX", "c++"))
    if found is None:
        pytest.skip("no compiler of C++ is here")
    return found


def environment(*addresses: str) -> dict[str, str]:
    """Return environment variables with which a program finds this Python and these devices."""
    return {**os.environ, "NNRT_DEVICES": ",".join(addresses), "NNRT_PYTHON": sys.executable}


@pytest.fixture
def run(shared_daemon: DaemonProcess) -> Program:
    """Return a function that runs a program on the shared daemon's device, and returns its output and exit code."""

    def start(program: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program, *map(str, arguments)], env=environment(shared_daemon.address), capture_output=True, text=True,
            timeout=DEADLINE_S,
        )  # fmt: skip

    return start
