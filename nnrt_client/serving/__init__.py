"""Server of models for clients in every language, by the Open Inference Protocol; the command `nnrt serve`.

The faces `grpc` and `rest` turn bytes into an `InferRequest` and an `InferResponse` into bytes. `Inference` sends it to
a version of a model, which the `repository` has loaded on devices.
"""
