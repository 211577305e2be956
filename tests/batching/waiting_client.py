"""Client program whose run waits for the device until the client is killed.

Usage: `python -m batching.waiting_client ADDRESS`
"""

import sys

from batching.conftest import UP_TO_16, dense_model, rows
from nnrt_client import Compilation, Executor, Runtime

if __name__ == "__main__":
    with Runtime([sys.argv[1]]) as runtime, Compilation(dense_model(), runtime.device()) as compilation:
        compilation.set_batching(UP_TO_16)
        compilation.build()
        with Executor(compilation) as executor:
            executor.run_sync([rows(0)])
