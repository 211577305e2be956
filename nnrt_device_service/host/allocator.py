"""Settings of the C library's malloc for a daemon, through whose hands a megabyte passes every millisecond."""

import ctypes
import gc
from contextlib import suppress

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# The most that glibc takes: what it arrives at by itself when a block of that size has been freed.
_MMAP_THRESHOLD_BYTES = 32 << 20
_TRIM_THRESHOLD_BYTES = 16 << 20
# Heaps. Else there are eight for each core, and what each has once taken stays there in pieces.
_ARENAS = 2


def keep_freed_memory() -> None:
    """Have some MiB stay with the process when they are freed, for the next message to arrive in.

    Else most messages of 1 MiB arrive in pages that are new, which cost as much as what is copied into them. Does
    nothing where the C library isn't glibc.
    """
    with suppress(AttributeError, OSError, TypeError):  # As ctypes says that there is none, or not this function.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_freed_memory() -> None:
    """Return to the host what nobody refers to and what is free. Takes some tenths of a second."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
