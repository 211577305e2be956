"""Command `python -m nnrt_device_service`, the same as `nnrt-device`."""

from nnrt_device_service.cli import main

main(prog_name="nnrt-device")
