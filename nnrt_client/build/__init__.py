"""From a model to a compiled one on a device: builds, their sources, uploads and caches.

A word means one thing in this room:

- to **build** is what `Compilation.build` does, from its source to a model that can run; a **build task** is one build
  under way, a **build result** what it ends with, a **build report** says what it took;
- to **compile** is what a device does with a graph, to **restore** what it does with what it has compiled earlier (a
  cache, an offline model, the daemon's store); a build does one of them;
- **prepare** is the wire's word for both (PrepareModel, PrepareModelFromModelCache, PrepareOfflineModel), and a
  **prepared model** what the daemon then has for the session, here a `PreparedHandle`.
"""
