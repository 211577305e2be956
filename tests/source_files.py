"""The files of the project: not what lies beside them on somebody's machine, such as virtual environments."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def source_files() -> list[Path]:
    """Those that git has or would take; without git, those in folders that are not hidden."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # There is no git, or what was unpacked is no clone.
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in found if not any(part.startswith(".") for part in path.parts)]
    else:
        names = listed.split("\0")
    return [ROOT / name for name in names if (ROOT / name).is_file()]
