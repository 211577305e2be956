"""Models of a folder: which are served, in which versions."""
