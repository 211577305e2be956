"""Systemd units for a single daemon, and for the supervisor of a host."""

import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path

from nnrt_hdi.errors import InvalidPath

UNITS = ("nnrt-device@.service", "nnrt-fleet.service")

# Directories that ProtectHome=yes hides.
_HOMES = ("/home", "/root", "/run/user")


def require_lasting_interpreter() -> None:
    """Raise InvalidPath if this interpreter lies in /tmp or /var/tmp.

    The units have temporary folders of their own (PrivateTmp=), and hosts empty the common ones.
    """
    for folder in ("/tmp", "/var/tmp"):  # noqa: S108
        if Path(sys.prefix).resolve().is_relative_to(Path(folder).resolve()):
            raise InvalidPath(
                f"it lies in {folder!r}, which no service sees and which doesn't last; install nnrt elsewhere, such as"
                " in /opt/nnrt",
                place=f"the interpreter {sys.executable!r}",
            )


def unit(name: str, *, is_user: bool, fleet_file: Path | None) -> str:
    """Return the text of one of `UNITS` for this interpreter, with `fleet_file` as the supervisor's argument."""
    home = "read-only" if sys.prefix.startswith(_HOMES) else "yes"
    folder = files("nnrt_device_service.fleet") / "systemd"
    # A drop-in adds what a device needs, such as the group of its /dev file or a memory limit. A user's systemd can't
    # grant rights, so its units have another sandbox.
    sandbox = (folder / ("user.sandbox" if is_user else "system.sandbox")).read_text()
    text = (folder / name).read_text()
    return text.format(
        python=_escaped(sys.executable),
        file=f" {_escaped(str(fleet_file.absolute()))}" if fleet_file else "",
        sandbox="\n" + sandbox.format(home=home),
        target="default.target" if is_user else "multi-user.target",
    )


def unit_folder(*, is_user: bool) -> Path:
    """Return the folder for units of an administrator, or of a user; see systemd.unit(5)."""
    if not is_user:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user"


def _escaped(path: str) -> str:
    """Return a path quoted as one word of ExecStart."""
    return shlex.quote(path).replace("%", "%%").replace("$", "$$")
