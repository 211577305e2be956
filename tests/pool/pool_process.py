"""Program that uses a pool, and is interrupted, forks, or ends.

Usage: `python pool_process.py interrupted|forked|ends ADDRESS...`
"""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from interrupts import InterruptAt
from networks import identity_model

from nnrt_client import NnrtError, Pool, PooledSession, UnavailableDevice
from nnrt_client.model_session.model_session import executor_of

END_S = 60
CHILD_S = 20
DEADLINE_S = 20.0


def interrupted(session: PooledSession) -> None:
    """Interrupt a run at each of its points, and check that later runs return their own results."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    ways: list[Callable[[float], float]] = [
        lambda number: _only(session.run([np.full(1, number, np.float32)])),
        lambda number: _only(session.submit([np.full(1, number, np.float32)]).result(DEADLINE_S)),
    ]
    for way in ways:
        for point in count(1):
            interrupts = InterruptAt(interrupt, point)
            with suppress(KeyboardInterrupt):
                interrupts.call(partial(way, -1))
            for number in (point, point + 0.5):
                assert way(number) == number
            if not interrupts.count:
                break
        assert point > 20, point
    executor = executor_of(session)
    futures = [session.submit([np.full(1, number, np.float32)]) for number in range(64)]
    assert [_only(future.result(DEADLINE_S)) for future in futures] == list(range(64))
    assert not executor._dispatcher.runs


def forked(session: PooledSession) -> None:
    """Check that a forked child gets clear errors at once, while runs wait in the parent."""
    pending = session.submit([np.zeros(1, np.float32)])
    child = os.fork()
    if not child:
        signal.alarm(CHILD_S)
        calls: list[Callable[[], object]] = [
            lambda: session.run([np.zeros(1, np.float32)]),
            lambda: session.submit([np.zeros(1, np.float32)]).result(DEADLINE_S),
            lambda: pending.result(DEADLINE_S),
            lambda: session.pool.load(identity_model()),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except UnavailableDevice:
                continue
            except NnrtError as error:
                print(number, repr(error), file=sys.stderr)
            os._exit(1)
        session.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pending.cancel()


def ends(session: PooledSession) -> None:
    """Start runs and return, so that the process ends while they are in flight."""
    for _ in range(8):
        session.submit([np.zeros(1, np.float32)])
    threading.Thread(target=session.run, args=([np.zeros(1, np.float32)],), daemon=True).start()


def _only(outputs: dict[str, Any]) -> float:
    (output,) = outputs.values()
    return float(output[0])


def main() -> None:
    faulthandler.dump_traceback_later(END_S, exit=True)
    what, *addresses = sys.argv[1:]
    pool = Pool(addresses)
    session = pool.load(identity_model(), cache=False)
    {"interrupted": interrupted, "forked": forked, "ends": ends}[what](session)
    if what != "ends":
        session.close()
        pool.close()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
