"""Tests of the torch backend, which `make test-torch` runs: torch is too large for `make test`."""

import pytest

pytest.importorskip("torch", reason="torch is not installed; the extra nnrt[torch] has it")
