"""NNRt for C and C++: a shared library with NNRt's 75 functions, implemented by `nnrt_client.oh_nn`.

The library (`library.c`) has a table of function pointers. The first call of a function starts a Python interpreter,
unless the program has one. This package then fills the table with callbacks, which convert C's arguments, call
`nnrt_client.oh_nn`, and write C's results.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
LIB = HERE / "lib"
LIBRARY = LIB / "libneural_network_runtime.so"
