"""Device daemon: offers one accelerator through the hardware device interface (HDI), over gRPC.

`transport` uses gRPC; `device` and what it owns know models but no gRPC. The command is `nnrt-device`.

Order in which threads take locks: first that of `SessionRegistry`; then one of a session's (`ConstantPool` before its
uploads, `RunRegistry`, `Descriptions`, `BufferPool`, `FilePool`), or those of gRPC's server and its calls; then
`SharedBudget` before `MemoryBudget`, `Counters` before `Usage`, and `Threads`. No thread has two locks of one kind, and
every other lock is taken alone. A thread may log and start threads under any lock.
"""
