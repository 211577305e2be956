"""Rows of a model's inputs that stay apart: runs of it may be joined along dimension 0, computed once, and split.

Each operator is judged here: whether a row of what it makes follows from the same row of its operands alone, and where
the rows are in it. They need not stay in dimension 0 on the way: transpositions move them, shapes fold other dimensions
into theirs, and models compute shapes with the number of rows. A number that is the same for all rows, such as the
length of texts, may be unknown: runs are joined only where it agrees.
"""

from nnrt_hdi.ops.rows_apart.graph import forms_of, require_rows_apart, rows_stay_apart_if

__all__ = ["forms_of", "require_rows_apart", "rows_stay_apart_if"]
