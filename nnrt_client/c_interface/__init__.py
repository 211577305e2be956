"""The parts of `nnrt_client.oh_nn`: C's constants, structs, handles and callbacks, and errors turned into codes."""
