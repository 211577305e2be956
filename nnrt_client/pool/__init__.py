"""Several devices as one: which of them have a model, and which of them makes a run."""
