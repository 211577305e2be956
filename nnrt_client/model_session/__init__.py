"""From a file to numbers in one step."""
