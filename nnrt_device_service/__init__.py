"""The device daemon: offers one accelerator through the hardware device interface, over gRPC.

`server` speaks gRPC and knows no models; `device` and what it owns know models and no gRPC. The command: `nnrt-device`.
"""
