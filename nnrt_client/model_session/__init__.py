"""Sessions of models: from a file to numbers in one step."""
