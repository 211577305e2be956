"""A process that forks with connections open, to see what its child can still do. Run as a script with an address.

The child's exit code says whether everything it tried ended at once with a clear error.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from networks import identity_model

from nnrt_client import Compilation, Executor, Runtime, UnavailableDevice

CHILD_S = 10.0
FORKS = 8
ONE = np.ones(1, np.float32)


def wait_for(child: int) -> int:
    """The exit code of a child; one that hangs is killed."""
    deadline = time.monotonic() + CHILD_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def require_unavailable(call: Callable[[], Any]) -> None:
    try:
        call()
    except UnavailableDevice as error:
        assert "was forked after a connection was made" in str(error), error
    else:
        raise AssertionError("it worked")


def main(address: str) -> None:
    runtime = Runtime([address])
    device = runtime.device()
    compilation = Compilation(identity_model(), device)
    compilation.build()
    executor = Executor(compilation)
    unbuilt = Compilation(identity_model(), device)
    # The daemon's runs end by cancellation only: threads of ours wait, in the client and in gRPC.
    executor.set_on_run_done(lambda *outcome: print("called back", os.getpid(), flush=True))
    pending = executor.submit([ONE])
    executor.run_async([ONE], 600_000, "pending")
    busy = threading.Event()

    def keep_busy() -> None:
        while not busy.is_set():
            device.status()
            executor.submit([ONE]).cancel()

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(FORKS):
        # Locks that another thread holds at the moment of the fork.
        with executor._lock, device._lock, runtime._lock, compilation._lock, executor._connection._lock:
            child = os.fork()
        if not child:
            began = time.monotonic()
            require_unavailable(lambda: executor.run_sync([ONE]))
            require_unavailable(lambda: executor.run_async([ONE], 1000, 1))
            require_unavailable(lambda: pending.result(CHILD_S))
            require_unavailable(device.status)
            require_unavailable(runtime.device)
            require_unavailable(runtime.devices)
            require_unavailable(unbuilt.build)
            require_unavailable(lambda: Executor(compilation))
            require_unavailable(lambda: Runtime([address]))
            require_unavailable(lambda: executor.input_dim_range(0))
            executor.close()
            compilation.close()
            runtime.close()
            assert time.monotonic() - began < CHILD_S / 2
            sys.exit(7)
        codes.append(wait_for(child))
    busy.set()
    for thread in threads:
        thread.join()
    assert codes == [7] * FORKS, codes
    assert not pending.done()
    device.status()
    print("ok", flush=True)
    # Ends with runs pending and everything open: without callbacks, and at once.


if __name__ == "__main__":
    main(sys.argv[1])
