"""The cost of TLS and of an identity, beside the same over a plain connection.

python benchmarks/tls.py
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from report import Report
from small_run import device_daemon, identity_model, in_turns, ratio_cells

from nnrt_client import Compilation, Executor, Runtime, Settings
from nnrt_device_service.access.identity import Identity, Role
from nnrt_device_service.access.keys import CA, Authority
from nnrt_device_service.access.tokens import issue_token

HOST = "127.0.0.1"
SIZES = {"1 KB": 256, "1 MB": 1 << 18, "64 MB": 1 << 24}
RUNS = {"1 KB": 200, "1 MB": 20, "64 MB": 1}
SESSIONS = 3


def guarded(folder: Path) -> tuple[list[str], Settings]:
    """Flags of a daemon with TLS and an access file, and the settings of a client with a token."""
    certificate, key = Authority(folder).issue_server("daemon", [HOST], days=1)
    token = issue_token(folder, folder / "access", Identity("name", "alice", Role.COMPILE))
    flags = ["--tls-cert", str(certificate), "--tls-key", str(key), "--access", str(folder / "access")]
    return flags, Settings(tls_ca=str(folder / CA), token_file=str(token), share_memory=False)


@contextmanager
def runner(runtime: Runtime, elements: int) -> Iterator[Callable[[], Any]]:
    """Runs that give back what they get."""
    with Compilation(identity_model(elements), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield partial(executor.run_sync, [np.zeros(elements, np.float32)])


def open_session(address: str, settings: Settings) -> None:
    with Runtime([address], settings) as runtime:
        runtime.device()


def measure() -> list[Report]:
    report = Report(
        "TLS and a token beside a plain connection",
        "Runs over gRPC on TCP loopback that give back what they get, and the opening and closing of a session with all"
        " its threads, by one client on two daemons in turns: medians of rounds, and the median of their ratios with"
        " its quartiles. Who a client is is looked up when its session opens: a run costs what encryption costs.",
        ("what", "plain µs", "TLS µs", "ratio", "quartiles"),
    )
    with ExitStack() as stack:
        flags, settings = guarded(Path(stack.enter_context(tempfile.TemporaryDirectory()), "keys"))
        plain_at, _ = stack.enter_context(device_daemon(f"{HOST}:0"))
        tls_at, _ = stack.enter_context(device_daemon(f"{HOST}:0", *flags))
        unguarded = Settings(share_memory=False)
        plain = stack.enter_context(Runtime([plain_at], unguarded))
        tls = stack.enter_context(Runtime([tls_at], settings))
        for name, elements in SIZES.items():
            with runner(plain, elements) as one, runner(tls, elements) as other:
                report.add(f"a run of {name}", *ratio_cells(in_turns(one, other, RUNS[name])))
        opens = partial(open_session, plain_at, unguarded), partial(open_session, tls_at, settings)
        report.add("a session", *ratio_cells(in_turns(*opens, SESSIONS)))
    return [report]


if __name__ == "__main__":
    for report in measure():
        report.show()
