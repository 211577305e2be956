"""The access file: who gets in, what each role may do, and what a daemon says to others."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from onnx import parser
from waiting import DEADLINE_S, until

from access.conftest import Access, move, refusal, start
from nnrt_client import (
    Compilation,
    ConnectionFailed,
    Device,
    Executor,
    OperationForbidden,
    Origin,
    Runtime,
    SaveCacheFailed,
    Settings,
    load,
    wait_until_cached,
)
from nnrt_client.build.compilation import compilation_of
from nnrt_client.onnx_import import program_from_onnx
from nnrt_client.session.channel import Channel
from nnrt_client.session.device import session_of
from nnrt_device_service.models.signatures import is_signature
from nnrt_hdi.access.access_file import AccessFile, Credentials
from nnrt_hdi.access.identity import ROLES, Role
from nnrt_hdi.access.watched_files import WatchedFiles
from nnrt_hdi.errors import InvalidFile
from nnrt_hdi.part import Part

DOUBLED = """
<ir_version: 9, opset_import: ["": 17]>
doubled (float[2] x) => (float[2] y) { y = Add(x, x) }
"""
NAMES = {role: f"{role}r" for role in ROLES}


def compile_and_run(device: Device) -> None:
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            assert executor.run_sync([np.array([1, 2], np.float32)])[0].tolist() == [1, 2]


def test_tokens(start_daemon: StartDaemon, access: Access) -> None:
    settings = access.add("alice", "compile")
    daemon = start(start_daemon, access)
    with Runtime([daemon.address], settings) as runtime:
        compile_and_run(runtime.device())
    assert (
        "the client sent no token (certificates count only if the daemon has --tls-client-ca); set token_file"
        in refusal(daemon.address, Settings(token_file=""))
    )
    assert "the daemon knows no such token" in refusal(daemon.address, access.settings("mallory"))
    assert "token-of" not in daemon.log()
    assert "token-of" not in "".join(Path(f"/proc/{daemon.pid}/{file}").read_text() for file in ("cmdline", "environ"))


def refused(device: Device, name: str, build: Callable[[Device], object]) -> None:
    """A refusal names the role that is missing, and whom to ask for it."""
    with pytest.raises(
        (OperationForbidden, SaveCacheFailed), match=rf"{name} has the role '.*', and .* needs .*--access file"
    ):
        build(device)


def restore(cache: bytes) -> Callable[[Device], object]:
    def build(device: Device) -> None:
        with Compilation.from_offline_buffer(cache, device) as compilation:
            compilation.build()

    return build


def test_what_roles_may_do(start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path) -> None:
    """Each may do what those before it may."""
    settings = {role: access.add(NAMES[role], role) for role in ROLES}
    daemon = start(start_daemon, access, "--backend", "restoring", "--store-dir", str(tmp_path / "store"))
    observer, runner, compiler, restorer, server, administrator = (
        closing.enter_context(Runtime([daemon.address], settings[role])).device() for role in ROLES
    )
    observer.status()
    refused(observer, NAMES["observe"], compile_and_run)
    refused(runner, NAMES["run"], compile_and_run)
    compile_and_run(compiler)  # From here on the store has the model.
    for device in (runner, compiler, restorer, server, administrator):
        compile_and_run(device)
    refused(observer, NAMES["observe"], compile_and_run)
    refused(compiler, NAMES["compile"], exported)
    cache = exported(restorer)
    refused(compiler, NAMES["compile"], restore(cache))
    restore(cache)(administrator)


def exported(device: Device) -> bytes:
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        return compilation.export_cache()


def test_a_cache_that_a_client_may_not_bring(start_daemon: StartDaemon, access: Access, tmp_path: Path) -> None:
    """Its model is compiled instead, and the cache stays for those who may."""
    compiler, restorer = access.add("compiler", "compile"), access.add("restorer", "restore")
    daemon = start(start_daemon, access, "--backend", "restoring")
    origins = []
    for settings in (compiler, restorer, compiler, restorer):
        with load(identity_model(), daemon.address, cache=tmp_path / "cache", settings=settings) as session:
            origins.append(session.report.origin)
            assert wait_until_cached(20)
    assert origins == [Origin.COMPILED, Origin.COMPILED, Origin.COMPILED, Origin.RESTORED]


def test_signed_caches(start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path) -> None:
    """They need no role; those of another key, or without a byte of theirs, do."""
    runner, restorer = access.add("runner", "run"), access.add("restorer", "restore")
    keys = [tmp_path / name for name in ("key", "other-key")]
    for number, key in enumerate(keys):
        key.write_bytes(bytes([number]) * 32)
        key.chmod(0o600)

    def devices(*flags: str) -> list[Device]:
        daemon = start(start_daemon, access, "--backend", "restoring", *flags)
        return [closing.enter_context(Runtime([daemon.address], its)).device() for its in (runner, restorer)]

    mine, its = devices("--cache-key", str(keys[0]))
    cache = exported(its)
    restore(cache)(mine)
    for flags in ((), ("--cache-key", str(keys[1]))):
        other, its = devices(*flags)
        refused(other, "runner", restore(cache))
        restore(cache)(its)
        refused(mine, "runner", restore(exported(its)))


def test_what_came_unsigned_leaves_unsigned(
    start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path
) -> None:
    """Else who may bring code could have it signed, and with that brought in by anybody."""
    runner, restorer = access.add("runner", "run"), access.add("restorer", "restore")
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    flags = ("--cache-key", str(key), "--store-dir", str(tmp_path / "store"))
    elsewhere = start(start_daemon, access, "--backend", "restoring")
    unsigned = exported(closing.enter_context(Runtime([elsewhere.address], restorer)).device())
    daemon = start(start_daemon, access, "--backend", "restoring", *flags)
    mine, its = (closing.enter_context(Runtime([daemon.address], who)).device() for who in (runner, restorer))
    refused(mine, "runner", restore(exported_again(unsigned, its)))
    signed = exported(its)
    restore(signed)(mine)
    restore(exported_again(signed, its))(mine)
    restore(exported(its))(mine)  # From the store, which compiled it.


def exported_again(cache: bytes, device: Device) -> bytes:
    with Compilation.from_offline_buffer(cache, device) as compilation:
        compilation.build()
        return compilation.export_cache()


def test_programs_are_not_signed(start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path) -> None:
    """Neither as they come nor out of the store."""
    runner, restorer = access.add("runner", "run"), access.add("restorer", "restore")
    key, program = tmp_path / "key", program_from_onnx(parser.parse_model(DOUBLED).SerializeToString())
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    flags = ("--cache-key", str(key), "--store-dir", str(tmp_path / "store"))
    daemon = start(start_daemon, access, "--backend", "onnxruntime", *flags)
    mine, its = (closing.enter_context(Runtime([daemon.address], who)).device() for who in (runner, restorer))
    for origins in ((Origin.COMPILED,), (Origin.STORED, Origin.SHARED)):  # Shared while it is still written.
        with compilation_of(program, its) as compilation:
            compilation.build()
            assert compilation.report is not None
            assert compilation.report.origin in origins
            cache = compilation.export_cache()
        refused(mine, "runner", restore(cache))
    restore(cache)(its)


def test_a_key_that_is_none(start_daemon: StartDaemon, tmp_path: Path) -> None:
    key = tmp_path / "key"
    for content, mode, said in ((b"x" * 32, 0o640, "others than its owner"), (b"short", 0o600, "it has 5 bytes")):
        key.write_bytes(content)
        key.chmod(mode)
        with pytest.raises(RuntimeError, match=f"--cache-key '{key}': {said}"):
            start_daemon("--cache-key", str(key))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice", "it has 1 words; use NAME ROLE KIND VALUE"),
        ("al/ice run user 0", "the name is 'al/ice'"),
        ("alice king user 0", "the role is 'king'; use one of observe, run, compile, restore, serve, administer"),
        ("alice run token secret", "the token is no SHA-256"),
        ("alice run face 0", "it is known by 'face'; use one of token, certificate, user"),
        ("alice run user nobody-here", "this host has no user 'nobody-here'"),
        ("carol compile user 0", "carol has the role 'run' above"),
        ("alice run certificate carol", "the certificate is that of carol above"),
    ],
)
def test_lines_that_make_no_sense(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "access"
    path.write_text(f"# A comment.\n\ncarol run certificate carol # and another\n{line}\n")
    with pytest.raises(InvalidFile, match="line 4: ") as refused:
        AccessFile(path)
    assert said in str(refused.value)


def test_files_that_make_no_sense(start_daemon: StartDaemon, access: Access) -> None:
    access.path.chmod(0o666)
    with pytest.raises(RuntimeError, match=r"access: everybody may write to it; chmod o-w"):
        start(start_daemon, access)
    access.path.chmod(0o600)
    with access.path.open("w") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(RuntimeError, match=r"access: it has more than 16777216 bytes"):
        start(start_daemon, access)
    access.path.unlink()
    with pytest.raises(RuntimeError, match=r"--access '.*access': it can't be read: No such file"):
        start(start_daemon, access)


def test_ways_to_be_known(access: Access) -> None:
    """One identity may have several, of which a token counts first."""
    access.add("alice", "run")
    access.write([*access.path.read_text().splitlines(), "alice run certificate alice.example", "root run user root"])
    file = AccessFile(access.path)
    alice = file.identity(Credentials("::1", token=b"token-of-alice", certificate="somebody"))
    assert alice.is_same(file.identity(Credentials("::1", certificate="alice.example")))
    assert str(file.identity(Credentials("unix", user_id=0))) == "root"
    for credentials in (Credentials("::1", certificate="bob"), Credentials("unix", user_id=1), Credentials("unix")):
        with pytest.raises(ConnectionFailed, match=r"--access file doesn't name|the client sent no token"):
            file.identity(credentials)
    assert "token" not in repr(Credentials("::1", token=b"token-of-alice"))


def test_changes_count_at_once(start_daemon: StartDaemon, access: Access) -> None:
    """Who is taken out of the file has no session any more; a broken file takes out nobody."""
    alice, carol = access.add("alice", "compile"), access.add("carol", "compile")
    daemon = start(start_daemon, access, "--lease-s", "0.2")
    with Runtime([daemon.address], alice) as runtime, Runtime([daemon.address], carol) as other:
        gone, kept = runtime.device(), other.device()
        lines = access.path.read_text().splitlines()
        access.write(["nonsense"])
        until(lambda: "former content stays in force" in daemon.log())
        gone.status()
        access.write(lines[1:])
        until(lambda: not gone.is_connected)
        assert "the daemon knows no such token" in refusal(daemon.address, alice)
        compile_and_run(kept)
        access.add("alice", "compile", "another-token")
        with Runtime([daemon.address], access.settings("alice", "another-token")) as runtime:
            runtime.device().status()


def test_nobody_takes_over_the_session_of_another(start_daemon: StartDaemon, access: Access) -> None:
    """Not even one who knows its id."""
    alice, mallory = access.add("alice", "run"), access.add("mallory", "administer")
    daemon = start(start_daemon, access)
    with Runtime([daemon.address], alice) as runtime:
        device = runtime.device()
        session_id = session_of(device).welcome.session_id
        for settings, error in ((mallory, "another identity than mallory opened"), (Settings(), "sent no token")):
            channel = Channel(daemon.address, settings, session_id)
            with pytest.raises(grpc.RpcError) as refused:
                next(channel.replies)
            assert error in refused.value.details()
            channel.close()
            channel.wait_closed(10)
        device.status()
        assert device.is_connected


@pytest.mark.slow
def test_a_file_that_may_be_read_later(tmp_path: Path) -> None:
    """For its mode was mended, or there are descriptors again."""
    path = tmp_path / "access"
    path.write_text("alice run certificate alice\nbob run certificate bob\n")
    access = AccessFile(path)
    bob = access.identity(Credentials("host", certificate="bob"))
    path.write_text("alice run certificate alice\n")
    path.chmod(0o666)
    assert access.is_valid(bob)
    path.chmod(0o600)
    until(lambda: not access.is_valid(bob))

    outcomes = iter((True, False, True))

    def read() -> str:
        if not next(outcomes):
            raise InvalidFile("no descriptor is left")
        return path.read_text()

    files = WatchedFiles([path], read)
    path.write_text("")
    assert files.content() == "alice run certificate alice\n"
    until(lambda: files.content() == "")


def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    """In place: half of it, or nothing, is no access file. Who has found out asks the file only when it is done."""
    path = tmp_path / "access"
    path.write_text("alice run certificate alice\nbob run certificate bob\n")
    access = AccessFile(path)
    bob = access.identity(Credentials("host", certificate="bob"))
    with path.open("w") as file:
        assert access.is_valid(bob)
        file.write("alice run certificate alice\n")
        file.flush()
        assert access.is_valid(bob)
        file.write("bob compile certificate bob\n")
    until(lambda: access.identity(Credentials("host", certificate="bob")).role is Role.COMPILE)


def test_a_file_that_is_written_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "watched"
    move_new(path, "first")
    writes = iter((None, "third", None))

    def read() -> str:
        text = path.read_text()
        if new := next(writes):
            move_new(path, new)
        return text

    files = WatchedFiles([path], read)
    move_new(path, "second")
    assert files.content() == "first"
    assert files.content() == "third"


def move_new(path: Path, text: str) -> None:
    beside = path.with_name("new")
    beside.write_text(text)
    move(beside, path)


def test_nobody_waits_for_a_disk(tmp_path: Path) -> None:
    """Who asks while another one reads gets what the file said before."""
    path = tmp_path / "watched"
    path.write_text("first")
    is_reading, may_read = threading.Event(), threading.Event()
    may_read.set()

    def read() -> str:
        is_reading.set()
        assert may_read.wait(DEADLINE_S)
        return path.read_text()

    files = WatchedFiles([path], read)
    may_read.clear()
    is_reading.clear()
    move_new(path, "second")
    reader = threading.Thread(target=files.content)
    reader.start()
    assert is_reading.wait(DEADLINE_S)
    assert files.content() == "first"
    may_read.set()
    reader.join(DEADLINE_S)
    assert files.content() == "second"


def test_what_is_no_signature() -> None:
    signature = b"nnrt cache signature 1\n" + bytes(32)
    assert is_signature(Part.of(signature))
    assert not is_signature(Part.of(signature + b"x"))
    assert not is_signature(Part.of(signature[:-1]))
