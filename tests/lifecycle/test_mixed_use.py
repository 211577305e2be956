"""Everything at once from many threads, for a moment. `benchmarks/soak.py` goes on for minutes."""

from pathlib import Path

import pytest
from mixed_use import MixedUse

from nnrt_client import Runtime


@pytest.mark.slow
def test_everything_at_once(runtime: Runtime, tmp_path: Path) -> None:
    use = MixedUse(runtime, tmp_path)
    try:
        use.run(3.0)
    finally:
        use.close()
    assert not use.wrong
    assert len(use.done) == 9
