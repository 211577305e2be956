"""Files that outlive a process: saved models, compiled models, and the directories they lie in."""
