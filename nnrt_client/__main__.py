"""Command `python -m nnrt_client`, which is the same as `nnrt`."""

from nnrt_client.cli import main

main(prog_name="nnrt")
