"""Attacks on a daemon, one after another, while an honest client runs its model. `make fuzz` prints the table.

Each attack runs in its own process, and has access to nothing but the daemon's port.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import click
import grpc
import numpy as np
import warm
from daemon_process import DaemonProcess
from fuzzed_messages import FuzzedMessages, fuzz
from model_draft import Draft
from networks import identity_model
from raw_client import METHODS, VALUES, Conversation, RawClient

from nnrt_client import Compilation, DataType, Executor, Model, OperationType, Runtime
from nnrt_hdi.errors import NnrtError

ONE = np.ones(1, np.float32)
MIB = 1 << 20
# Number of sessions, or of silent connections, that an attacker has at a time.
_MANY = 8
_SILENT = 400
_FLAGS = ("--max-run-s", "0.5", "--stuck-s", "30")


def messages(address: str, until: float) -> None:
    """Call random methods with requests of valid structure and random values."""
    for seed in count():
        with suppress(NnrtError, grpc.RpcError), RawClient(address) as client:
            client.prepare(Draft.sum_of_input_and(VALUES).message)
            drawn = FuzzedMessages(seed)
            for _ in range(200):
                fuzz(client, drawn)
                if time.monotonic() > until:
                    return


def bombs(address: str, until: float) -> None:
    """Send graphs of millions of empty nodes."""
    content = b"\x22\x00" * (7 * MIB)
    request = b"\x0a\x80\x80\x80\x07" + content
    while time.monotonic() < until:
        with RawClient(address) as client, suppress(NnrtError, grpc.RpcError):
            client.call("NnrtDevice.GetSupportedOperation", request)


def connections(address: str, until: float) -> None:
    """Open TCP connections, and send nothing."""
    host, _, port = address.rpartition(":")
    while time.monotonic() < until:
        with ExitStack() as stack, suppress(OSError):
            opened = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(_SILENT)]
            for connection in opened:
                connection.settimeout(max(until - time.monotonic(), 0.1))
                while connection.recv(4096):
                    pass


def sessions(address: str, until: float) -> None:
    """Open sessions and their streams, and drop them without closing."""
    stream = METHODS["PreparedModel.RunStream"]
    while time.monotonic() < until:
        with ExitStack() as stack, suppress(NnrtError, grpc.RpcError):
            for _ in range(_MANY):
                client = stack.enter_context(RawClient(address))
                for _ in range(8):
                    stack.callback(Conversation(client.channel, stream, client.metadata).cancel)


def long_runs(address: str, until: float) -> None:
    """Run products of large matrices."""
    model = Model()
    x = model.input((3000, 3000), DataType.INT32)
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.MATMUL, x, x)])
    model.finish()
    with Runtime([address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            while time.monotonic() < until:
                with suppress(NnrtError):
                    executor.run_sync([np.ones((3000, 3000), np.int32)])


ATTACKS: dict[str, Callable[[str, float], None]] = {
    attack.__name__: attack for attack in (messages, bombs, connections, sessions, long_runs)
}


@contextmanager
def _honest(address: str) -> Iterator[Executor]:
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def _row(daemon: DaemonProcess, executor: Executor, name: str, seconds: float) -> str:
    """Run one attack, and return its row of the table."""
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")  # Resets the peak of the daemon's memory.
    command = [sys.executable, __file__, "--address", daemon.address, "--attack", name, "--seconds", str(seconds)]
    attacker = warm.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took_ms, errors = [], list[str]()
    try:
        while attacker.poll() is None:
            began = time.perf_counter()
            try:
                executor.run_sync([ONE])
            except NnrtError as error:
                errors.append(str(error))
            took_ms.append((time.perf_counter() - began) * 1000)
    finally:
        attacker.kill()
        attacker.wait()
    status = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))
    median, late = np.percentile(took_ms, (50, 99))
    log = daemon.log()
    is_sound = "Traceback" not in log and "failed unexpectedly" not in log
    outcome = f"all {len(took_ms)} runs served"
    if errors:
        outcome = f"{len(errors)} of {len(took_ms)} runs failed, the first one: {errors[0]}"
    return f"| {name} | {peak} | {median:.2f} | {late:.1f} | {outcome}{'' if is_sound else '; see the log'} |"


@click.command()
@click.option("--seconds", default=60.0, help="In all.")
@click.option("--backend", default="reference")
@click.option("--only", type=click.Choice(list(ATTACKS)), multiple=True, help="May be repeated.")
@click.option("--address", default="", hidden=True)
@click.option("--attack", default="", hidden=True)
def main(seconds: float, backend: str, only: tuple[str, ...], address: str, attack: str) -> None:
    """Attack a daemon, and print how an honest client's runs fared meanwhile."""
    if attack:
        ATTACKS[attack](address, time.monotonic() + seconds)
        return
    click.echo("| attack | daemon's peak MiB | honest p50 ms | p99 ms | outcome |\n|---|---|---|---|---|")
    daemon = DaemonProcess("--backend", backend, *_FLAGS)
    try:
        with _honest(daemon.address) as executor:
            names = only or tuple(ATTACKS)
            for name in names:
                click.echo(_row(daemon, executor, name, seconds / len(names)))
        click.echo(f"The daemon {'lives' if daemon.process.poll() is None else 'has died'}.")
    finally:
        daemon.kill()


if __name__ == "__main__":
    main()
