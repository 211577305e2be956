"""NNRt for C and C++: a shared library with the 75 functions under C's signatures, over `nnrt_client.oh_nn`.

The library itself (`library.c`) is a table of pointers. With the first call it starts an interpreter, or joins the one
that the program has, and this package fills the table with callbacks, which read C's arguments and write its results.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
LIB = HERE / "lib"
LIBRARY = LIB / "libneural_network_runtime.so"
