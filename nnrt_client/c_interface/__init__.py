"""Parts of `nnrt_client.oh_nn`: constants, structs, handles, callbacks and functions of NNRt's C interface."""
