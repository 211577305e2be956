"""Caches of a backend that can't look into them: the daemon takes back what it has signed, and nothing else."""

import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model

from access.conftest import Access, start
from access.test_access import exported, exported_again, refused, restore
from nnrt_client import (
    Device,
    InvalidFile,
    OperationFailed,
    OperationForbidden,
    Origin,
    Runtime,
    SaveCacheFailed,
    load,
    wait_until_cached,
)
from nnrt_client.build.compilation import compilation_of
from nnrt_client.model.model import parts_of
from nnrt_client.model.program import Program
from nnrt_hdi.files.compiled import CompiledModel
from nnrt_hdi.files.graph_file import packed_graph
from nnrt_hdi.part import Part

KEY_FILE = ".nnrt-cache-key"
OPAQUE = ("--backend", "blob")
# As plugins/blob_backend.py has it.
FORMAT = "packed graph"
NOT_SIGNED = "restores only those that it has signed itself; compile the model again, .* --cache-key or --store-dir"


@pytest.fixture
def device_of(closing: ExitStack) -> Callable[[DaemonProcess], Device]:
    return lambda daemon: closing.enter_context(Runtime([daemon.address])).device()


def changed(cache: bytes, change: Callable[[list[Part]], list[Part]]) -> bytes:
    """A cache with other parts, sound as a file."""
    compiled = CompiledModel.unpacked(cache)
    parts = change(list(compiled.parts))
    return b"".join(
        CompiledModel(
            compiled.target,
            compiled.source_digest,
            compiled.config,
            compiled.inputs,
            compiled.outputs,
            compiled.version,
            parts,
        ).packed()
    )


def test_only_what_is_signed_is_restored(
    start_daemon: StartDaemon, device_of: Callable[[DaemonProcess], Device]
) -> None:
    """Whoever brings it; here everybody has every right."""
    daemon, other = start_daemon(*OPAQUE), start_daemon(*OPAQUE)
    device = device_of(daemon)
    cache = exported(device)
    restore(cache)(device)
    restore(exported_again(cache, device))(device)
    assert "restoring what is_own=True" in daemon.log()
    for made_up in (
        changed(cache, lambda parts: parts[:-1]),
        changed(cache, lambda parts: [Part.of(b"made up"), *parts[1:]]),
        changed(cache, lambda parts: [*parts[:-1], Part.of(bytes(parts[-1].data)[:-1] + b"?")]),
        changed(cache, lambda parts: [*parts, parts[-1]]),
        exported(device_of(other)),
    ):
        asked = daemon.log().count("restoring what")
        with pytest.raises((OperationForbidden, InvalidFile), match=NOT_SIGNED):
            restore(made_up)(device)
        assert daemon.log().count("restoring what") == asked


def test_it_needs_no_role(start_daemon: StartDaemon, access: Access, closing: ExitStack) -> None:
    runner, restorer = access.add("runner", "run"), access.add("restorer", "restore")
    daemon = start(start_daemon, access, *OPAQUE)
    mine, its = (closing.enter_context(Runtime([daemon.address], who)).device() for who in (runner, restorer))
    restore(exported(its))(mine)


def test_the_secret_is_in_the_store(
    start_daemon: StartDaemon, device_of: Callable[[DaemonProcess], Device], tmp_path: Path
) -> None:
    """All daemons of the store have it, also those to come."""
    store = ("--store-dir", str(tmp_path / "store"))
    first = start_daemon(*OPAQUE, *store)
    cache = exported(device_of(first))
    status = (tmp_path / "store" / KEY_FILE).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o600, 32)
    first.kill()
    for _ in range(2):
        restore(cache)(device_of(start_daemon(*OPAQUE, *store)))
    assert (tmp_path / "store" / KEY_FILE).stat() == status


def test_a_secret_that_others_may_read_is_none(start_daemon: StartDaemon, tmp_path: Path) -> None:
    store = ("--store-dir", str(tmp_path / "store"))
    start_daemon(*OPAQUE, *store).kill()
    secret = tmp_path / "store" / KEY_FILE
    secret.chmod(0o644)
    with pytest.raises(RuntimeError, match=rf"--store-dir .*: {KEY_FILE}: others than its owner may use it; chmod 600"):
        start_daemon(*OPAQUE, *store)


def test_daemons_with_one_cache_key_share_caches(
    start_daemon: StartDaemon, device_of: Callable[[DaemonProcess], Device], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    daemons = [start_daemon(*OPAQUE, "--cache-key", str(key), "--store-dir", str(tmp_path / name)) for name in "ab"]
    restore(exported(device_of(daemons[0])))(device_of(daemons[1]))
    assert not (tmp_path / "a" / KEY_FILE).exists()


def test_other_backends_need_no_secret(start_daemon: StartDaemon, tmp_path: Path) -> None:
    start_daemon("--store-dir", str(tmp_path / "store"))
    assert not (tmp_path / "store" / KEY_FILE).exists()


def test_a_model_whose_cache_is_refused_is_compiled_again(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A daemon without a store has another secret each time."""
    origins = []
    for _ in range(2):
        daemon = start_daemon(*OPAQUE)
        for _ in range(2):
            with load(identity_model(), daemon.address, cache=tmp_path / "cache") as session:
                origins.append(session.report.origin)
                assert wait_until_cached(20)
        daemon.kill()
    assert origins == [Origin.COMPILED, Origin.RESTORED] * 2


def test_what_was_made_of_a_program(
    start_daemon: StartDaemon, access: Access, closing: ExitStack, tmp_path: Path
) -> None:
    """It is signed as that, and needs the role and the daemon's consent as the program itself does."""
    runner, restorer = access.add("runner", "run"), access.add("restorer", "restore")
    program = Program(FORMAT, [Part.of(b"".join(packed_graph(parts_of(identity_model()).graph)))])
    store = ("--store-dir", str(tmp_path / "store"))
    daemon = start(start_daemon, access, *OPAQUE, *store)
    mine, its = (closing.enter_context(Runtime([daemon.address], who)).device() for who in (runner, restorer))
    with compilation_of(program, its) as compilation:
        compilation.build()
        cache = compilation.export_cache()
    for _ in range(2):
        refused(mine, "runner", restore(cache))
        restore(cache)(its)
        cache = exported_again(cache, its)
    unwilling = start(start_daemon, access, *OPAQUE, *store, "--accept-programs", "never")
    device = closing.enter_context(Runtime([unwilling.address], restorer)).device()
    with pytest.raises(OperationFailed, match=r"this daemon takes none \(--accept-programs never\)"):
        restore(cache)(device)


@pytest.mark.parametrize("parts", [99, 100])
def test_a_part_is_for_the_signature(
    start_daemon: StartDaemon, device_of: Callable[[DaemonProcess], Device], parts: int
) -> None:
    device = device_of(start_daemon(*OPAQUE, "--option", f"parts={parts}"))
    if parts == 99:
        restore(exported(device))(device)
        return
    with pytest.raises(SaveCacheFailed, match="exports 100 parts, and one of 100 is for the daemon's signature"):
        exported(device)
