"""The device daemon: offers one accelerator through the hardware device interface, over gRPC.

`transport` speaks gRPC; `device` and what it owns know models and no gRPC. The command: `nnrt-device`.

Locks are taken in this order: the `SessionRegistry`'s; then one of a session's (`ConstantPool` before its uploads,
`RunRegistry`, `Descriptions`, `BufferPool`, `FilePool`), or those of gRPC's server and its calls; then `SharedBudget`
before `MemoryBudget`, `Counters` before `Usage`, and `Threads`. No thread holds two of a kind, and all other locks are
taken alone. Under any of them a line may be logged and a thread started.
"""
