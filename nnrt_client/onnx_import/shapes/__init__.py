"""Shapes, and numbers made of them, as far as the importer knows them before a run."""
