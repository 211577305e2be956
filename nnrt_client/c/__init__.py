"""NNRt for C and C++: a shared library with the 75 functions, implemented by `nnrt_client.oh_nn`.

The library (`library.c`) is a table of function pointers. Its first call starts a Python interpreter, or uses the one
that the program has started. This package then fills the table with callbacks that read C's arguments and write C's
results.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
LIB = HERE / "lib"
LIBRARY = LIB / "libneural_network_runtime.so"
