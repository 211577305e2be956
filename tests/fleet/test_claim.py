"""Who serves an accelerator holds it."""

from pathlib import Path

import pytest
from conftest import StartDaemon

pytestmark = pytest.mark.slow


def test_daemons_that_nobody_supervises_may_share_one(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The second one says so; one of another accelerator has nothing to say."""
    faulty = ("--backend", "faulty", "--option")
    first = start_daemon(*faulty, f"chip={tmp_path}/0")
    second = start_daemon(*faulty, f"chip={tmp_path}/0")
    other = start_daemon(*faulty, f"chip={tmp_path}/1")
    assert f"the process with pid {first.pid} serves it already" in second.log()
    assert "serves it already" not in first.log() + other.log()
