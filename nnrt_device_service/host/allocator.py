"""Settings of the C library's malloc for a daemon that allocates about a megabyte per millisecond."""

import ctypes
import gc
from contextlib import suppress

# From malloc.h of glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# Maximum that glibc accepts, and to which it adapts by itself when a block of that size is freed.
_MMAP_THRESHOLD_BYTES = 32 << 20
_TRIM_THRESHOLD_BYTES = 16 << 20
# Number of arenas. By default glibc makes up to eight per core, and each keeps freed memory as fragments.
_ARENAS = 2


def keep_freed_memory() -> None:
    """Make malloc keep some MiB of freed memory for the next messages.

    Otherwise most messages of 1 MiB arrive in new pages, which cost as much as the copying. Does nothing if the C
    library isn't glibc.
    """
    with suppress(AttributeError, OSError, TypeError):  # ctypes finds no C library, or no such function.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_freed_memory(*, collects_garbage: bool = True) -> None:
    """Return free memory to the host: some ms. To collect garbage before takes some tenths of a second."""
    if collects_garbage:
        gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
