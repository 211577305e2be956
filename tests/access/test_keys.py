"""`nnrt-device keys`: three commands create the files with which a daemon admits only known clients."""

import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from click.testing import CliRunner
from conftest import StartDaemon

from access.conftest import works
from nnrt_client import Settings
from nnrt_device_service.cli import main
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.identity import Identity, Role


def keys(*arguments: object, exit_code: int = 0) -> str:
    """Run the command, and return what it prints."""
    result = CliRunner().invoke(main, ["keys", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result.output


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def serve_flags(told: str) -> list[str]:
    """Return the flags of the `serve` command that `keys` prints as the next step, without the address."""
    (line,) = re.findall(r"nnrt-device serve (.*)", told)
    flags = shlex.split(line)
    assert flags[0] == "--listen"
    return flags[2:]


def test_three_commands(start_daemon: StartDaemon, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    flags = serve_flags(keys("server", folder, "--host", "localhost", "--host", "127.0.0.1"))
    told = keys("token", folder, "alice", "--role", "compile")
    daemon = start_daemon(*flags, listen="0.0.0.0:0")
    address = daemon.address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
    works(address, Settings(tls_ca=str(folder / "ca.pem"), token_file=str(folder / "alice.token")))
    assert (folder / "alice.token").read_text().strip() not in told + (folder / "access").read_text() + daemon.log()
    private = [folder / name for name in ("ca-key.pem", "localhost-key.pem", "alice.token", "access")]
    assert {mode(path) for path in private} == {0o600}
    assert mode(folder) == 0o700


def test_certificates_of_clients(start_daemon: StartDaemon, tmp_path: Path) -> None:
    flags = serve_flags(keys("server", tmp_path, "--host", "127.0.0.1"))
    keys("client", tmp_path, "render-7", "--role", "compile")
    settings = Settings(
        tls_ca=str(tmp_path / "ca.pem"),
        tls_cert=str(tmp_path / "render-7.pem"),
        tls_key=str(tmp_path / "render-7-key.pem"),
    )
    daemon = start_daemon(*flags, "--tls-client-ca", str(tmp_path / "ca.pem"))
    works(daemon.address, settings)
    keys("client", tmp_path, "render-7", "--role", "run", "--replace")
    assert (tmp_path / "access").read_text().splitlines()[1:] == ["render-7 run certificate render-7"]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    made = [("server", "--host", "rack7"), ("client", "bob", "--role", "run"), ("token", "alice", "--role", "run")]
    for command, *others in made:
        keys(command, tmp_path, *others)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for command, *others in made:
        assert "it is there already; move it away, or give --replace" in keys(command, tmp_path, *others, exit_code=1)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    for command, *others in made:
        keys(command, tmp_path, *others, "--replace")
    after = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert {path.name for path in after if after[path] == before[path]} == {"ca.pem", "ca-key.pem"}


def test_mistakes(tmp_path: Path) -> None:
    keys("token", tmp_path, "alice", "--role", "run")
    assert "is no name" in keys("token", tmp_path, "../alice", "--role", "run", exit_code=2)
    assert "alice has the role 'run' above" in keys("client", tmp_path, "alice", "--role", "compile", exit_code=1)
    (tmp_path / "ca.pem").write_text("nothing")
    assert "are no authority that was made here" in keys("server", tmp_path, "--host", "x", exit_code=1)


@pytest.mark.parametrize(
    "flags", [(), ("access",), ("tls",)], ids=["nothing", "authentication without TLS", "TLS without authentication"]
)
def test_a_daemon_that_is_open_to_strangers(start_daemon: StartDaemon, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A daemon on a public address starts without TLS or without authentication only with --insecure."""
    given = serve_flags(keys("server", tmp_path, "--host", "127.0.0.1"))
    keys("token", tmp_path, "alice", "--role", "run")
    chosen = [*(given[4:] if "access" in flags else ()), *(given[:4] if "tls" in flags else ())]
    with pytest.raises(RuntimeError, match=r"address '0\.0\.0\.0:0': other hosts can reach it.*or --insecure"):
        start_daemon(*chosen, listen="0.0.0.0:0")
    start_daemon(*chosen, "--insecure", listen="0.0.0.0:0")


@pytest.mark.parametrize("name", ["ca", "ca-key", "alice-key"])
def test_names_of_other_files(tmp_path: Path, name: str) -> None:
    """A certificate never overwrites an authority or a key, even with the option to replace files."""
    for client in ("alice", name):
        written = {path.name: path.read_bytes() for path in tmp_path.glob("*.pem")}
        arguments = ["keys", "client", str(tmp_path), client, "--role", "run", "--replace"]
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "use another name" in result.output
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.pem")} == written


IN_THE_BLOCK = """
import os, sys
from pathlib import Path
from nnrt_device_service.access import tokens
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.files.new_file import only_writer_of
when, write_new, folder = sys.argv[1], tokens.write_new, Path(sys.argv[2])
def die(*arguments, **options):
    if when == "after":
        write_new(*arguments, **options)
    os._exit(9)
tokens.write_new = die
with only_writer_of(folder):
    tokens.issue_token(folder, folder / "access", Identity("name", "alice", Role.COMPILE), replaces=True)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_a_token_is_replaced(tmp_path: Path, when: str) -> None:
    """After a crash both the old and the new token work, and the next replacement cleans up."""
    keys("token", tmp_path, "alice", "--role", "run")
    keys("token", tmp_path, "bob", "--role", "run")
    former = (tmp_path / "alice.token").read_bytes()
    assert warm.run([sys.executable, "-c", IN_THE_BLOCK, when, str(tmp_path)], timeout=60).returncode == 9
    there = (tmp_path / "alice.token").read_bytes()
    assert (there == former) == (when == "before")
    for token in (former, there):
        assert identity_of(tmp_path, token) == Identity("name", "alice", Role.COMPILE)
    assert keys("token", tmp_path, "alice", "--role", "compile", exit_code=1)
    keys("token", tmp_path, "alice", "--role", "compile", "--replace")
    lines = (tmp_path / "access").read_text().splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["bob", "run", "token"], ["alice", "compile", "token"]]
    assert identity_of(tmp_path, (tmp_path / "alice.token").read_bytes()).role is Role.COMPILE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["access", "alice.token", "bob.token"]


def identity_of(folder: Path, token: bytes) -> Identity:
    return AccessFile(folder / "access").identity(Credentials("host", token.strip()))


@pytest.mark.slow
def test_many_at_once(tmp_path: Path) -> None:
    """Concurrent processes lose no line of each other."""
    names = [f"client-{number}" for number in range(6)]
    command = [sys.executable, "-m", "nnrt_device_service", "keys", "token", str(tmp_path)]
    processes = [
        warm.Popen([*command, name, "--role", "run"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    for process in processes:
        assert process.communicate(timeout=120)[1] == ""
    lines = (tmp_path / "access").read_text().splitlines()
    assert sorted(line.split()[0] for line in lines[1:]) == names
