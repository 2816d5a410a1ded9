"""Schemas of payloads: formats, versions, compatibility and validation. Avro and Protobuf need `holdfast[schemas]`."""
