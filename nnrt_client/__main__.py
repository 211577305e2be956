"""`python -m nnrt_client` is `nnrt`."""

from nnrt_client.cli import main

main(prog_name="nnrt")
