"""Reflection: clients ask the server which calls it offers, with the protocol's names."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from nnrt_client.serving.wire import open_inference_pb2 as pb

# Name of the protocol's package. Ours differs, see open_inference.proto.
PACKAGE = "inference"
SERVICE = f"{PACKAGE}.{pb.DESCRIPTOR.services_by_name['GRPCInferenceService'].name}"


def offer_reflection(server: Any) -> None:
    """Add reflection to a server."""
    described = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(described)
    text = text_format.MessageToString(described).replace(pb.DESCRIPTOR.package, PACKAGE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
    names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool)
