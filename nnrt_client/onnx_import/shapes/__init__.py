"""Shape arithmetic: shapes and numbers computed from them, as far as they are known before a run."""
