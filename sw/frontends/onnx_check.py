"""Checks of an ONNX protobuf that its parser leaves out: text, attributes and arity of nodes."""

from typing import Any

import onnx
from google.protobuf.message import Message

from npulse.sw.errors import UserError, shorten


def check_text(proto: onnx.ModelProto, path: str) -> None:
    """Refuse names that are not UTF-8, which protobuf would hand out as bytes."""
    waiting: list[Any] = [proto]
    while waiting:
        for descriptor, value in waiting.pop().ListFields():
            if descriptor.type not in (descriptor.TYPE_MESSAGE, descriptor.TYPE_STRING):
                continue
            if descriptor.name in ("doc_string", "metadata_props"):
                continue
            values = [value] if isinstance(value, (str, bytes, Message)) else list(value)
            if descriptor.type == descriptor.TYPE_MESSAGE:
                waiting.extend(values)
            elif any(isinstance(text, bytes) for text in values):
                raise UserError(
                    f"{path}: field {descriptor.name} is not UTF-8 text; export the model again"
                )


def node_label(proto: onnx.NodeProto) -> str:
    """Name of a node for messages: its own, or that of its first output, or its operator."""
    return shorten(proto.name or next((o for o in proto.output if o), "") or proto.op_type)


def check_node(proto: onnx.NodeProto, version: int, path: str) -> None:
    """Check attributes and numbers of inputs and outputs against the schema of the operator.

    An operator without a schema in this opset is left to the importer.
    """
    label = f"{path}: {shorten(proto.op_type)} node {node_label(proto)!r}"
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, proto.domain)
    except onnx.defs.SchemaError:
        return
    kinds = onnx.AttributeProto.AttributeType
    for attribute in proto.attribute:
        due = schema.attributes.get(attribute.name)
        kind: Any = None if due is None else due.type  # its stub has no members
        if kind is not None and int(kind.value) != attribute.type:
            found = kinds.Name(attribute.type) if attribute.type in kinds.values() else "unknown"
            raise UserError(
                f"{label}: attribute {attribute.name} must be of type {kind.name}, not "
                f"{found}; export the model again"
            )
    for name, due in schema.attributes.items():
        if due.required and all(a.name != name for a in proto.attribute):
            raise UserError(f"{label}: attribute {name} is required; export the model again")
    counts = ("inputs", len(proto.input), schema.min_input, schema.max_input)
    for what, count, low, high in (
        counts,
        ("outputs", len(proto.output), schema.min_output, schema.max_output),
    ):
        if not low <= count <= high:
            raise UserError(
                f"{label} must have {low} to {high} {what}, not {count}; export the model again"
            )
    if not any(proto.output):
        raise UserError(f"{label} must name an output; export the model again")
