"""Rows of a model's inputs: whether they stay apart, so that runs can be joined along dimension 0 and split again.

A row is one entry of dimension 0 of an input. Each operator has a judgement: a function that decides whether each row
of the result depends only on the same row of the operands, and where the rows are in the result. Rows may leave
dimension 0: transpositions move them, reshapes fold other dimensions into theirs, and models compute shapes from the
number of rows. A number that is the same for all rows, such as the length of texts, may be unknown: the daemon joins
only runs in which it agrees.
"""

from nnrt_hdi.ops.rows_apart.graph import forms_of, require_rows_apart, rows_apart_condition

__all__ = ["forms_of", "require_rows_apart", "rows_apart_condition"]
