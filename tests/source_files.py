"""Files of the project, without other files in its folder, such as virtual environments."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def source_files() -> list[Path]:
    """Return the files that git tracks or would add; without git, those outside hidden folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):  # Git isn't installed, or this is no clone.
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in found if not any(part.startswith(".") for part in path.parts)]
    else:
        names = listed.split("\0")
    return [ROOT / name for name in names if (ROOT / name).is_file()]
