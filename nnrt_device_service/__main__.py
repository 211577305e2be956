"""`python -m nnrt_device_service` is `nnrt-device`."""

from nnrt_device_service.cli import main

main(prog_name="nnrt-device")
