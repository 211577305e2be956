"""C programs on real daemons: their results, and their ends."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from nnrt_client.c import INCLUDE, LIBRARY

from .conftest import DEADLINE_S, REPOSITORY, Compiled, Program, environment

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
HEADERS = INCLUDE / "neural_network_runtime"
EXAMPLES = REPOSITORY / "examples" / "c"
# Memory errors end the program with a report. Leaks aren't checked: Python itself keeps memory until the end.
SANITIZED = ("-std=gnu11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("standard", ["-std=c11", "-std=c17"])
def test_an_example(compiled: Compiled, run: Program, standard: str) -> None:
    ended = run(compiled(EXAMPLES / "add.c", standard))
    assert (ended.stdout, ended.stderr, ended.returncode) == ("11 0 33 0\n", "", 0)


def test_asynchronous_runs_of_threads(compiled: Compiled, run: Program) -> None:
    ended = run(compiled(PROGRAMS / "threads.c"), 1000)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("4000 of 4000\n", "", 0)


def test_forks(compiled: Compiled, run: Program) -> None:
    """A child forked before the first call can run models; one forked after it gets errors, and the parent goes on."""
    ended = run(compiled(PROGRAMS / "forks.c"))
    assert (ended.stdout, ended.returncode) == ("0 0 14\n", 0)


@pytest.mark.parametrize("how", ["main", "thread", "callback", "child"])
def test_the_end_with_runs_under_way(compiled: Compiled, run: Program, how: str) -> None:
    ended = run(compiled(PROGRAMS / "ending.c"), how)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("under way\n", "", 0)


def test_a_delegate_in_cpp(compiled: Compiled, run: Program) -> None:
    ended = run(compiled(PROGRAMS / "delegate.cpp", "-std=c++17", "-Wpedantic"))
    assert (ended.stdout, ended.stderr, ended.returncode) == ("200 of 200\n", "", 0)


@pytest.mark.parametrize("header", sorted(path.name for path in HEADERS.iterdir()))
@pytest.mark.parametrize(("suffix", "standard"), [(".c", "-std=c11"), (".cpp", "-std=c++17")])
def test_a_header_alone(compiled: Compiled, tmp_path: Path, header: str, suffix: str, standard: str) -> None:
    source = tmp_path / f"includes{suffix}"
    source.write_text(f"#include <neural_network_runtime/{header}>\nint main(void) {{ return 0; }}\n")
    compiled(source, standard, "-Wpedantic")


def test_each_thread_has_its_last_error(compiled: Compiled, run: Program) -> None:
    ended = run(compiled(PROGRAMS / "errors.c"))
    lengths = re.findall(r"^the shape has (\d+) dimensions; give 1 to 10", ended.stdout, re.MULTILINE)
    assert (lengths, ended.stderr, ended.returncode) == (["11", "12", "13"], "", 0)


@pytest.mark.parametrize(
    ("how", "said"), [("global", "7 0 ended 7\n"), ("local", "7 0 ended 7\n"), ("late", "late 7\n")]
)
def test_a_program_with_an_interpreter(compiled: Compiled, run: Program, how: str, said: str) -> None:
    """A program with its own Python interpreter keeps its `__main__`, may call from two threads, fork, and finalize."""
    libpython = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("this Python has no shared library")
    ended = run(compiled(PROGRAMS / "embedding.c"), libpython, sys.executable, how)
    assert (ended.stdout, ended.stderr, ended.returncode) == (said, "", 0)


def test_a_library_that_is_unloaded(compiled: Compiled, run: Program) -> None:
    ended = run(compiled(PROGRAMS / "loading.c"), LIBRARY)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 0 1\n0 0 1\n", "", 0)


def test_what_is_left_alone(compiled: Compiled) -> None:
    """The library changes no signal handler, signal mask or locale; SIGPIPE doesn't end a program whose daemon died."""
    daemon = DaemonProcess()
    try:
        with subprocess.Popen(
            [compiled(PROGRAMS / "manners.c")],
            env={**environment(daemon.address), "PYTHONFAULTHANDLER": "1", "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            daemon.kill()
            said, _ = process.communicate(timeout=DEADLINE_S)
        assert (said, process.returncode) == ("14\n", 0)
    finally:
        daemon.kill()


def test_python_s_environment_is_for_other_programs(
    compiled: Compiled, run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('this is no numpy')\n")
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE"):
        monkeypatch.setenv(name, str(tmp_path / "numpy.py" if name == "PYTHONSTARTUP" else tmp_path))
    ended = run(compiled(EXAMPLES / "add.c"))
    assert (ended.stdout, ended.stderr, ended.returncode) == ("11 0 33 0\n", "", 0)


def test_a_program_without_standard_streams(compiled: Compiled, run: Program) -> None:
    add = compiled(EXAMPLES / "add.c")
    assert run(Path("/bin/sh"), "-c", f"exec {add} <&- >&- 2>&-").returncode == 0


def test_nothing_grows(compiled: Compiled, run: Program) -> None:
    ended = run(compiled(PROGRAMS / "growth.c"), 200, 4000)
    assert ended.returncode == 0, ended.stderr
    for grown in re.findall(r" (\d+) KiB", ended.stdout):
        assert int(grown) < 1024, ended.stdout


@pytest.mark.parametrize("program", ["threads", "ending", "forks"])
def test_no_errors_of_memory(compiled: Compiled, run: Program, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    ended = run(compiled(PROGRAMS / f"{program}.c", *SANITIZED), 50)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_death_of_a_daemon(compiled: Compiled) -> None:
    """Each run in flight gets exactly one callback about the death."""
    daemon = DaemonProcess("--backend", "slow")
    try:
        process = subprocess.Popen(
            [compiled(EXAMPLES / "asynchronous.c")], env=environment(daemon.address), stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "under way\n"
            daemon.kill()
            said, _ = process.communicate(timeout=DEADLINE_S)
        assert (said, process.returncode) == ("0 done, 0 failed, 8 died\n", 0)
    finally:
        daemon.kill()


def test_the_network_of_the_demo(
    compiled: Compiled, run: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C program classifies the digits as well as Python; a cache's name may have any bytes in any locale."""
    data, cache = tmp_path / "digits.bin", tmp_path / os.fsdecode(b"cach\xc3\xa9 \xff")
    monkeypatch.setenv("LC_ALL", "C")
    subprocess.run([sys.executable, EXAMPLES / "digits_data.py", data], check=True, timeout=DEADLINE_S)
    cache.mkdir()
    program = compiled(EXAMPLES / "digits.c")
    for arguments in ((), (cache,), (cache,)):
        ended = run(program, data, *arguments)
        assert (ended.stderr, ended.returncode) == ("", 0)
        assert re.search(r": 4[6-9]\d of 500 digits are right$", ended.stdout), ended.stdout
    assert list(cache.iterdir())


@pytest.mark.parametrize("name", ["./{}", "{}"])
def test_an_interpreter_here_or_in_path(
    compiled: Compiled, shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    python = Path(sys.executable)
    monkeypatch.chdir(python.parent)
    ended = subprocess.run(
        [compiled(EXAMPLES / "add.c")],
        env={
            **environment(shared_daemon.address), "NNRT_PYTHON": name.format(python.name), "PATH": str(python.parent)
        },
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr, ended.returncode) == ("11 0 33 0\n", "", 0)


def test_no_interpreter(compiled: Compiled, tmp_path: Path) -> None:
    """The first call prints the problem once, and nnrt_last_error returns it after every call."""
    (empty := tmp_path / "empty").mkdir()
    venv.create(empty)
    program = compiled(EXAMPLES / "add.c")
    no_python = "this is no interpreter of Python that works; set NNRT_PYTHON to one that has the package nnrt"
    problems = {
        tmp_path / "none": f"{no_python}: {tmp_path}/none",
        empty / "bin" / "python3": f"the package nnrt can't be used from: {LIBRARY.parents[3]}",
    }
    for python, problem in problems.items():
        ended = subprocess.run(
            [program], env={**environment(), "NNRT_PYTHON": str(python)}, capture_output=True, text=True,
            timeout=DEADLINE_S,
        )  # fmt: skip
        assert ended.stderr.splitlines()[-2:] == [
            f"libneural_network_runtime: {problem}", f"OH_NNModel_Construct(): NULL: {problem}",
        ]  # fmt: skip
        assert ended.returncode == 1
