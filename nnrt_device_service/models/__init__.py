"""Compiling, restoring and exporting of models."""
