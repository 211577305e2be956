"""Client whose signal handler raises errors or closes objects while it runs a model.

Another process sends the signals. Run as a script, this module is that client. It uses public names only.
"""

import errno
import faulthandler
import gc
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import warm
from networks import identity_model

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    NnrtError,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
    load,
)

# Time limit of a client per thousand signals, and for everything else.
_THOUSAND_S = 60.0
_CLIENT_S = 20.0
# Program of the process that sends the signals.
_SENDER = """
import os, random, select, signal, sys
pid = int(sys.argv[1])
chance = random.Random(pid)
while not select.select([sys.stdin], (), (), chance.uniform(0.0001, 0.004))[0]:
    os.kill(pid, signal.SIGUSR1)
"""
SIZES = {"small": 4, "large": 500_000}
KINDS: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "TimeoutError": lambda: TimeoutError("of the handler"),
    "RuntimeError": lambda: RuntimeError("of the handler"),
    "Exception": lambda: Exception("of the handler"),
    "ValueError": lambda: ValueError("of the handler"),
    "TimedOut": lambda: TimedOut("of the handler"),
    "UnavailableDevice": lambda: UnavailableDevice("of the handler"),
    "OSError": lambda: OSError(errno.EPIPE, "of the handler"),
    "BlockingIOError": lambda: BlockingIOError(errno.EAGAIN, "of the handler"),
}
WAYS = ("run_sync", "with_tensors", "submit", "result", "pool", "pool_submit", "reload", "reload_submit")


def verdict_of(address: str, what: str, wanted: int, signals: int, **arguments: Any) -> dict[str, Any]:
    """Run a client process that gets `signals` signals in all, and return the verdict that it prints."""
    tests = Path(__file__).parents[1]
    process = warm.run(
        [sys.executable, __file__, what, address, str(wanted), json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=2 * (_CLIENT_S + signals * _THOUSAND_S / 1000),
        env={**os.environ, "PYTHONPATH": str(tests), "SIGNALS": str(signals)},
    )
    assert process.returncode == 0, f"it exited with {process.returncode}: {process.stdout}\n{process.stderr}"
    verdict: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    verdict["stderr"] = process.stderr
    return verdict


class Handler:
    """Signal handler that calls `action` once, at the next signal."""

    def __init__(self) -> None:
        self.action: Callable[[], object] | None = None
        signal.signal(signal.SIGUSR1, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()


class Raising:
    """Handler that raises errors of a kind, and counts how many reach the caller."""

    def __init__(self, handler: Handler, kind: str) -> None:
        self._handler = handler
        self._kind = kind
        self._error: BaseException | None = None
        self.raised = self.reached = 0
        self.faults: list[str] = []

    def call(self, function: Callable[[], object]) -> None:
        """Call a function once while a signal may come."""
        self._error = None
        try:
            self._handler.action = self._raise
            function()
            self._handler.action = None
        except BaseException as error:
            self._handler.action = None
            if error is self._error:
                self.reached += 1
            else:
                self.faults.append(f"{self._error!r} was raised, and {error!r} came")

    def _raise(self) -> None:
        self._error = KINDS[self._kind]()
        self.raised += 1
        raise self._error


@contextmanager
def _signals() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-S", "-c", _SENDER, str(os.getpid())], stdin=subprocess.PIPE) as sender:
        try:
            yield
        finally:
            assert sender.stdin is not None
            sender.stdin.close()


def raising(address: str, wanted: int, size: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Raise `wanted` errors of each kind in each way to run."""
    handler = Handler()
    given = np.arange(SIZES[size], dtype=np.float32)
    faults: list[str] = []
    lost: Counter[str] = Counter()
    total = 0
    with ExitStack() as closing:
        device = closing.enter_context(Runtime([address], Settings(**settings))).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        executor = closing.enter_context(Executor(compilation))
        target = closing.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, list(given.shape))))
        loaded = partial(load, identity_model(), settings=Settings(**settings), cache=False)
        pool = closing.enter_context(loaded([address]))
        reload = closing.enter_context(loaded(address, on_death="reload"))
        began: list[Any] = []
        run: dict[str, Callable[[], object]] = {
            "run_sync": lambda: executor.run_sync([given]),
            "with_tensors": lambda: executor.run_sync([given], [target]),
            "submit": lambda: began.append(executor.submit([given])),
            "result": lambda: began[0].result(),
            "pool": lambda: pool.run([given]),
            "pool_submit": lambda: began.append(pool.submit([given])),
            "reload": lambda: reload.run([given]),
            "reload_submit": lambda: began.append(reload.submit([given])),
        }
        closing.enter_context(_signals())
        for way in WAYS:
            for kind in KINDS:
                errors = Raising(handler, kind)
                while errors.raised < wanted:
                    if way == "result":
                        began.append(executor.submit([given]))
                    errors.call(run[way])
                    for future in began:
                        future.cancel()
                    began.clear()
                lost[f"{way} {kind}"] += errors.raised - errors.reached
                total += errors.raised
                faults += errors.faults
        outputs = executor.run_sync([given])
        if not np.array_equal(outputs[0], given):
            faults.append("a run after all of them was answered wrongly")
        del outputs
    return {"faults": faults[:10], "lost": +lost, "raised": total}


def closing(address: str, wanted: int, size: str, closes: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Close an executor, or its runtime, from the handler during a run, `wanted` times."""
    handler = Handler()
    given = np.arange(SIZES[size], dtype=np.float32)
    with _signals(), ExitStack() as keeping:
        shared = keeping.enter_context(Runtime([address], Settings(**settings)))
        built = keeping.enter_context(Compilation(identity_model(), shared.device()))
        built.build()
        for _ in range(wanted):
            with ExitStack() as each:
                runtime, compilation = shared, built
                if closes == "runtime":
                    runtime = each.enter_context(Runtime([address], Settings(**settings)))
                    compilation = each.enter_context(Compilation(identity_model(), runtime.device()))
                    compilation.build()
                executor = each.enter_context(Executor(compilation))
                handler.action = runtime.close if closes == "runtime" else executor.close
                try:
                    while handler.action is not None:
                        executor.run_sync([given])
                except NnrtError:
                    pass
                handler.action = None
    return {"closed": wanted}


def main() -> None:
    what, address, wanted, others = sys.argv[1:]
    # Python drops a handler's error in callbacks of a garbage collection, such as those of the WeakSet of threads.
    gc.disable()
    faulthandler.dump_traceback_later(_CLIENT_S + int(os.environ["SIGNALS"]) * _THOUSAND_S / 1000, exit=True)
    act: Callable[..., dict[str, Any]] = raising if what == "raising" else closing
    print(json.dumps(act(address, int(wanted), **json.loads(others))))


if __name__ == "__main__":
    main()
