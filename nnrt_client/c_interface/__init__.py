"""What `nnrt_client.oh_nn` is made of: C's constants, structs, handles, callbacks, and errors turned into codes."""
