"""Models in processes of their own, where foreign code may crash or hang without the daemon.

`IsolatingBackend` stands for the backend, `IsolatedModel` for a model. A `ModelProcess` is forked for each model, and a
`Channel` passes one run at a time to it. `child` is what runs there.
"""
