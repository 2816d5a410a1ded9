"""Reading of records that were written when a field had another type: that field is left out.

The history of a table, and its log, keep what was written; a migration rewrites records, and leaves the history as it
was.
"""

from dataclasses import replace
from typing import Any

import msgspec

from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import Images

__all__ = ["lenient_images"]

_raw_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.msgpack.Encoder().encode


def lenient_images(images: Images, model: type[Model]) -> Images:
    """Return the images with a decoder that leaves out fields which cannot be read as their present type."""
    decode = images.decode

    def read(key: bytes, image: bytes) -> Any:
        try:
            return decode(key, image)
        except msgspec.ValidationError:
            return decode(key, _legible(images, model, key, image))

    return replace(images, decode=read)


def _legible(images: Images, model: type[Model], key: bytes, image: bytes) -> bytes:
    """Return an image with only its readable fields."""
    good: dict[str, msgspec.Raw] = {}
    known = {str(number) for number in model.__spec__.numbers}
    for number, raw in _raw_map.decode(image).items():
        if number not in known:
            continue
        try:
            images.decode(key, _encode({number: raw}))
        except msgspec.ValidationError:
            continue
        good[number] = raw
    return _encode(good)
