"""Demonstration of programs in C on real devices: `make demo-c`.

It compiles the examples in this folder, starts a daemon, and runs them: a sum; the network of the digits, compiled and
then loaded from its cache; and asynchronous runs during which the daemon is killed.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from nnrt_client.c import INCLUDE, LIB

HERE = Path(__file__).resolve().parent
DEADLINE_S = 120.0
console = Console(highlight=False)


def start_daemon(stack: ExitStack) -> "tuple[subprocess.Popen[str], str]":
    """Start a daemon with the reference backend, and return its process and address."""
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "nnrt_device_service", "serve", "--listen", "127.0.0.1:0", "--name", "for-c"],
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def compile_program(name: str, folder: Path) -> Path:
    """Compile a source in this folder, and return the program."""
    program = folder / name
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", f"-I{INCLUDE}", f"-L{LIB}", f"-Wl,-rpath,{LIB}"]
    source = [str(HERE / f"{name}.c"), "-lneural_network_runtime", "-o", str(program)]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *source], check=True)
    return program


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-c-")))
        daemon, address = start_daemon(stack)
        environment = {**os.environ, "NNRT_DEVICES": address, "NNRT_PYTHON": sys.executable}

        def run(*command: object) -> None:
            console.print(f"$ {' '.join(Path(str(part)).name for part in command)}", style="bold")
            subprocess.run(list(map(str, command)), env=environment, check=True, timeout=DEADLINE_S)

        console.rule(f"programs in C, on the device at {address}")
        run(compile_program("add", folder))
        data, cache = folder / "digits.bin", folder / "cache"
        cache.mkdir()
        subprocess.run([sys.executable, HERE / "digits_data.py", data], check=True)
        digits = compile_program("digits", folder)
        for _ in range(2):
            run(digits, data, cache)
        console.rule("the daemon is killed in the middle of asynchronous runs")
        program = compile_program("asynchronous", folder)
        console.print("$ asynchronous 1000000", style="bold")
        with subprocess.Popen([program, "1000000"], env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                console.print(line, end="")
                if "are done" in line:
                    break
            daemon.kill()
            console.print(process.communicate(timeout=DEADLINE_S)[0], end="")
        if process.returncode:
            raise SystemExit(process.returncode)


if __name__ == "__main__":
    main()
