"""NNRt's 75 functions, in a module per kind of handle."""
