"""What becomes of a request to compile, restore or export a model."""
