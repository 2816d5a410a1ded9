"""Descriptor sets of Protobuf, made without protoc, and the message classes of the reference library."""

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

Field = descriptor_pb2.FieldDescriptorProto
TYPES = {name.removeprefix("TYPE_").lower(): number for name, number in Field.Type.items()}
"""The types of fields by name."""


def file_of(*messages: descriptor_pb2.DescriptorProto, syntax: str = "proto3") -> descriptor_pb2.FileDescriptorProto:
    """A file of the package shop with these messages and an enum `Color`."""
    made = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax)
    made.dependency.append("google/protobuf/timestamp.proto")
    color = made.enum_type.add(name="Color")
    for number, name in enumerate(("NONE", "RED", "BLUE")):
        color.value.add(name=name, number=number)
    made.message_type.extend(messages)
    return made


def message(name: str, *fields: tuple[str, int, str]) -> descriptor_pb2.DescriptorProto:
    """A message. A field is (name, number, type): `int32`, `repeated int32`, `optional int32`, `.shop.Item`."""
    made = descriptor_pb2.DescriptorProto(name=name)
    for field, number, words in fields:
        label, _, kind = words.rpartition(" ")
        one = made.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
        if label == "repeated":
            one.label = Field.LABEL_REPEATED
        elif label == "required":
            one.label = Field.LABEL_REQUIRED
        elif label == "optional":
            one.proto3_optional = True
            one.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field}")
        if kind.startswith("."):
            one.type = Field.TYPE_ENUM if kind == ".shop.Color" else Field.TYPE_MESSAGE
            one.type_name = kind
        else:
            one.type = TYPES[kind]
    return made


def with_map(made: descriptor_pb2.DescriptorProto, name: str, number: int) -> descriptor_pb2.DescriptorProto:
    """Add a field `map<string, int64>`."""
    entry = made.nested_type.add(name="ScoresEntry")
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    entry.options.map_entry = True
    made.field.add(
        name=name,
        number=number,
        type=Field.TYPE_MESSAGE,
        type_name=f".shop.{made.name}.ScoresEntry",
        label=Field.LABEL_REPEATED,
    )
    return made


def set_of(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    """The descriptor set, as protoc writes it."""
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def text_of(*messages: descriptor_pb2.DescriptorProto, syntax: str = "proto3") -> str:
    """The descriptor set as the text of a schema."""
    return base64.b64encode(set_of(file_of(*messages, syntax=syntax))).decode()


def class_of(name: str, *messages: descriptor_pb2.DescriptorProto, syntax: str = "proto3") -> Any:
    """The class of a message, by the reference library."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file_of(*messages, syntax=syntax).SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
