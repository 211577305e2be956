"""Messages of the protocol, generated from protos/."""
