"""NNRt's 75 functions, a module for each kind of handle."""
