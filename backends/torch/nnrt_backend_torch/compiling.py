"""Runs of one kind as one function that torch's compiler makes: the option `compile`.

Torch traces the kernels of a kind once, with inputs of zeros, and compiles what they do: operators that follow each
other become one kernel. That takes seconds to minutes, a C++ compiler on a CPU, and Triton on CUDA.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.config
from torch.fx.experimental.proxy_tensor import make_fx

_log = logging.getLogger(__name__)
# Torch's compiler has state of its own, and is for one thread at a time.
_lock = threading.Lock()

# Computes the outputs of a run of its inputs, on the device.
Compute = Callable[..., list[torch.Tensor]]


def compiled(compute: Compute, examples: Sequence[torch.Tensor]) -> Compute | None:
    """Return a compiled function, or None if torch can't compile it.

    Works in a thread of its own, which ends: see `Stream` for the reason.

    Args:
        compute: The function. It must do the same for all inputs of the examples' shapes.
        examples: Inputs.
    """
    made: list[Compute] = []

    def work() -> None:
        began = time.monotonic()
        try:
            # In this process: a daemon starts no others that outlive what they are for.
            with _lock, torch.inference_mode(), torch._inductor.config.patch(compile_threads=1):
                graph: Any = make_fx(compute)(*examples)
                function = torch.compile(graph, dynamic=False)
                function(*examples)  # Only now it is compiled.
            made.append(function)
            _log.info("torch compiled a kind of run in %.1f s", time.monotonic() - began)
        except Exception as error:  # Of the compiler, which has many kinds; or a kernel needs elements of its operands.
            _log.warning(
                "a model is computed node by node, for torch can't compile it: %s", str(error).partition("\n")[0]
            )

    thread = threading.Thread(target=work, name="torch-compile")
    thread.start()
    thread.join()
    return made[0] if made else None
