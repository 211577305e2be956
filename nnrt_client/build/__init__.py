"""Builds, which make a model ready to run on a device: their sources, uploads and caches.

The words of this package:

- to **build** is what `Compilation.build` does, from its source to a model that can run; a **build task** is a build
  under way, a **build result** its outcome, a **build report** its account of time and bytes;
- to **compile** is what a device does with a graph, to **restore** what it does with what it has compiled earlier (a
  cache, an offline model, the daemon's store); a build does one of them;
- to **prepare** is the protocol's word for both (PrepareModel, PrepareModelFromModelCache, PrepareOfflineModel); a
  **prepared model** is what the daemon then has for the session, and a `PreparedHandle` refers to it here.
"""
