"""Files: saved models, compiled models, and their directories."""
