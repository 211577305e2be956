"""The device, and the models that it keeps."""
