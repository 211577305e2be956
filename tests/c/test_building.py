"""The ways to build a program that docs/guides/c-programs.md names, and what they make of the examples."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm

from nnrt_client.c import LIBRARY

from .conftest import DEADLINE_S, REPOSITORY, Program

pytestmark = pytest.mark.slow

EXAMPLES = REPOSITORY / "examples" / "c"


def told(*flags: str) -> list[str]:
    """What `python -m nnrt_client.c` tells."""
    asked = [sys.executable, "-m", "nnrt_client.c", *flags]
    return warm.run(asked, check=True, capture_output=True, timeout=DEADLINE_S).stdout.split()


def build(*command: object, **environment: str) -> list[str]:
    """What a command says, which succeeds."""
    return subprocess.run(
        list(map(str, command)), env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True,
        timeout=DEADLINE_S,
    ).stdout.split()  # fmt: skip


def needs(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not here")


def require_sum(run: Program, program: Path) -> None:
    """The program computes, and looks for the library by its name, so that it can be moved."""
    ended = run(program)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("11 0 33 0\n", "", 0)
    assert LIBRARY.name.encode() in program.read_bytes()
    assert str(LIBRARY).encode() not in program.read_bytes()


def test_with_a_compiler(compiler: str, run: Program, tmp_path: Path) -> None:
    program = tmp_path / "add"
    build(compiler, EXAMPLES / "add.c", *told("--cflags", "--libs"), "-o", program)
    require_sum(run, program)


def test_with_pkg_config(compiler: str, run: Program, tmp_path: Path) -> None:
    needs("pkg-config")
    (path,) = told("--pkg-config")
    flags = build("pkg-config", "--cflags", "--libs", "neural_network_runtime", PKG_CONFIG_PATH=path)
    program = tmp_path / "add"
    build(compiler, EXAMPLES / "add.c", *flags, "-o", program)
    require_sum(run, program)


def test_with_cmake(compiler: str, run: Program, tmp_path: Path) -> None:
    needs("cmake")
    (path,) = told("--cmake")
    build("cmake", "-S", EXAMPLES, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={path}", CC=compiler)
    build("cmake", "--build", tmp_path, "--target", "add")
    require_sum(run, tmp_path / "add")


def test_with_make(compiler: str, run: Program, tmp_path: Path) -> None:
    needs("make")
    for source in EXAMPLES.iterdir():
        shutil.copy(source, tmp_path)
    build("make", "-C", tmp_path, "add", f"PYTHON={sys.executable}", f"CC={compiler}")
    require_sum(run, tmp_path / "add")
