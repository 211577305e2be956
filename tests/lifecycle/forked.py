"""Program that forks with connections open, and tests what the child process can still do.

Usage: `python forked.py ADDRESS`. The child's exit code says whether every call failed at once with a clear error.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from networks import identity_model

from nnrt_client import Compilation, Executor, Runtime, UnavailableDevice
from nnrt_client.session.device import session_of

CHILD_S = 10.0
FORKS = 8
ONE = np.ones(1, np.float32)


def wait_for(child: int, lives: int) -> int:
    """Return the exit code of a child; kill it if it hangs.

    The child has the other end of the pipe `lives` open until it ends.
    """
    with os.fdopen(lives) as pipe:
        if not select.select([pipe], [], [], CHILD_S)[0]:
            os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
    # The daemon's runs end by cancellation only, so that threads of the client and of gRPC wait at the fork.
    executor.set_on_run_done(lambda *outcome: print("called back", os.getpid(), flush=True))
    pending = executor.submit([ONE])
    executor.run_async([ONE], timeout_ms=600_000, user_data="pending")
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
        lives, held_open = os.pipe()
        # Hold locks at the moment of the fork.
        with device._lock, runtime._known._lock, compilation._lock, session_of(device)._lock:
            child = os.fork()
        if not child:
            began = time.monotonic()
            require_unavailable(lambda: executor.run_sync([ONE]))
            require_unavailable(lambda: executor.run_async([ONE], timeout_ms=1000, user_data=1))
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
        os.close(held_open)
        codes.append(wait_for(child, lives))
    busy.set()
    for thread in threads:
        thread.join()
    assert codes == [7] * FORKS, codes
    assert not pending.done()
    device.status()
    print("ok", flush=True)
    # The process ends with runs pending and everything open; it must end at once, without callbacks.


if __name__ == "__main__":
    main(sys.argv[1])
