"""Client whose runs are held by the device until the client is killed.

Usage: `python -m started.client ADDRESS NUMBER...`
"""

import sys
from concurrent.futures import wait

from networks import identity_model

from nnrt_client import Compilation, Executor, Runtime
from started.conftest import run_of

if __name__ == "__main__":
    with Runtime([sys.argv[1]]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            executor.run_sync(run_of(0))
            wait([executor.submit(run_of(float(number))) for number in sys.argv[2:]])
