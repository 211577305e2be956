"""Errors of torch as NNRt's."""

import torch

from nnrt_hdi.errors import OutOfMemory

# Words of the RuntimeError for memory of the host, which has no class of its own.
_NO_MEMORY = ("can't allocate memory", "not enough memory")


def typed(error: BaseException) -> OutOfMemory:
    """Return what `out_of_memory` returns; raise an error that says something else."""
    found = out_of_memory(error)
    if found is None:
        raise error
    return found


def out_of_memory(error: BaseException) -> OutOfMemory | None:
    """Return OutOfMemory for an error of torch that says so, after the cache of the device's allocator is given back.

    Any other error of torch is a fault of the device or of a kernel: None.
    """
    if isinstance(error, torch.OutOfMemoryError):
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()
    elif not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
        return None
    return OutOfMemory(str(error).partition("\n")[0])
