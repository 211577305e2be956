"""Notices from a daemon to its supervisor, in the protocol of sd_notify(3), which systemd speaks as well.

The environment variable NOTIFY_SOCKET names a Unix socket that receives datagrams of lines NAME=VALUE. Without the
variable the daemon sends nothing.
"""

import os
import socket
from contextlib import suppress

# Seconds to wait for a full socket. Signs of life don't wait, because another one follows.
_SEND_S = 2.0


def is_supervised() -> bool:
    """Return whether a supervisor receives notices."""
    return os.environ.get("NOTIFY_SOCKET", "").startswith(("/", "@"))


def notify(**fields: object) -> None:
    """Send fields to the supervisor. Raises nothing if that fails."""
    if not is_supervised():
        return
    address = os.environ["NOTIFY_SOCKET"]
    lines = [f"{name}={' '.join(str(value).split())}" for name, value in fields.items()]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.0 if "WATCHDOG" in fields else _SEND_S)
        sender.sendto("\n".join(lines).encode(), address.replace("@", "\0", 1))


def send_ready(what: str, addresses: list[str], out: str = "") -> None:
    """Notify the supervisor that the daemon serves, and why its device is suspended, if it is."""
    notify(READY=1, STATUS=f"serving {what} on {', '.join(addresses)}", **_addresses(addresses), **_out(out))


def notify_sharing(*, is_shared: bool) -> None:
    """Notify the supervisor whether daemons may share the device, as they do a CPU.

    If they may not, the supervisor starts a new daemon only after the former one has ended.
    """
    notify(**{SHARED: "1" if is_shared else ""})


def send_alive(addresses: list[str], out: str = "") -> None:
    """Send a sign of life. Repeats the addresses and suspension for a supervisor that started after the daemon."""
    notify(WATCHDOG=1, **_addresses(addresses), **_out(out))


def send_condition(what: str, out: str) -> None:
    """Notify the supervisor that the device is suspended for a reason, or has resumed if that is empty."""
    notify(STATUS=f"{what} is out: {out}" if out else f"serving {what}", **{OUT: out})


def send_stopping(within_s: float) -> None:
    """Notify the supervisor that the daemon drains and ends within `within_s` seconds."""
    notify(STOPPING=1, STATUS="draining", EXTEND_TIMEOUT_USEC=int(within_s * 1e6))


def sign_of_life_s() -> float | None:
    """Return the seconds between signs of life, half of the supervisor's watchdog limit; None without a watchdog."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID") or str(os.getpid())
    if not (usec.isdecimal() and int(usec) and pid == str(os.getpid())):
        return None
    return int(usec) / 1e6 / 2


ADDRESSES = "X_NNRT_ADDRESSES"
OUT = "X_NNRT_OUT"
SHARED = "X_NNRT_SHARED"


def _addresses(addresses: list[str]) -> dict[str, str]:
    return {ADDRESSES: " ".join(addresses)}


def _out(out: str) -> dict[str, str]:
    return {OUT: out} if out else {}
