"""NNRt's 75 functions, in one module per kind of handle, and one for the deprecated functions."""
