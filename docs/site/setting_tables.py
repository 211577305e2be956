"""Tables of settings, from the dataclass that declares them."""

from dataclasses import fields

from nnrt_device_service.settings import Settings


def daemon_settings() -> str:
    """Return one row for each setting of a daemon: flag, environment variable, default, meaning."""
    rows = ["| flag | environment | default | meaning |", "|---|---|---|---|"]
    for entry in fields(Settings):
        default = " ".join(entry.default) if isinstance(entry.default, tuple) else entry.default
        shown = f"`{default}`" if default not in ("", False) else ""
        flag, variable = entry.name.replace("_", "-"), entry.name.upper()
        rows.append(f"| `--{flag}` | `NNRT_DEVICE_{variable}` | {shown} | {entry.metadata['help']} |")
    return "\n".join(rows)
