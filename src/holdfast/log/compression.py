"""Compression of a block's payloads with gzip, zstd or lz4, if that saves space."""

import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import lz4.block

from holdfast.base.errors import Corrupt, InvalidArgument

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["COMPRESS_FROM", "DECOMPRESSED_MAX", "Codec", "codec_by_id", "codec_by_name", "compress", "decompress"]

COMPRESS_FROM = 1024
"""Fewer bytes than this are stored without compression."""
DECOMPRESSED_MAX = 100 << 20
"""The largest decompressed size of a block, so that a hostile file cannot fill the memory."""
_WORTH = 0.95  # keep the compressed form only if it saves 5 %
_GZIP_WBITS = 31  # a gzip frame, as any tool can read it


def _gunzip(data: bytes, size: int) -> bytes:
    machine = zlib.decompressobj(_GZIP_WBITS)
    plain = machine.decompress(data, size + 1)  # one byte more than expected, to detect a stream that is too long
    return _ended(plain, machine.eof)


def _unzstd(data: bytes, size: int) -> bytes:
    machine = zstd.ZstdDecompressor()
    plain = machine.decompress(data, size + 1)
    return _ended(plain, machine.eof)


def _ended(plain: bytes, eof: bool) -> bytes:
    if not eof:
        raise EOFError("the stream does not end where it should")
    return plain


def _unlz4(data: bytes, size: int) -> bytes:
    return bytes(lz4.block.decompress(data, uncompressed_size=size))


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression method; the id is stored in the block's header."""

    id: int
    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


_CODECS = (
    Codec(1, "gzip", lambda data: zlib.compress(data, 6, _GZIP_WBITS), _gunzip),
    Codec(2, "zstd", lambda data: zstd.compress(data, 3), _unzstd),
    Codec(3, "lz4", lambda data: bytes(lz4.block.compress(data, store_size=False)), _unlz4),
)
codec_by_id = {codec.id: codec for codec in _CODECS}


def codec_by_name(name: str | None) -> Codec | None:
    """Return the codec of this name; None for None."""
    if name is None:
        return None
    for codec in _CODECS:
        if codec.name == name:
            return codec
    raise InvalidArgument(f"compression must be None, 'gzip', 'zstd' or 'lz4', not {name!r}")


def compress(codec: Codec, data: bytes) -> bytes | None:
    """Return the compressed data, or None if the data should be stored without compression."""
    if not COMPRESS_FROM <= len(data) <= DECOMPRESSED_MAX:
        return None
    packed = codec.compress(data)
    return packed if len(packed) <= len(data) * _WORTH else None


def decompress(codec_id: int, data: bytes, size: int) -> bytes:
    """Return exactly `size` bytes, or raise `Corrupt`; never allocate more than `DECOMPRESSED_MAX`."""
    codec = codec_by_id.get(codec_id)
    if codec is None:
        raise Corrupt(f"unknown compression {codec_id}")
    if not 0 <= size <= DECOMPRESSED_MAX:
        raise Corrupt(f"the decompressed size would be {size} bytes; the limit is {DECOMPRESSED_MAX}")
    try:
        plain = codec.decompress(data, size)
    except (zlib.error, zstd.ZstdError, lz4.block.LZ4BlockError, ValueError, EOFError) as error:
        raise Corrupt(f"{codec.name} cannot decompress it: {error}") from error
    if len(plain) != size:
        raise Corrupt(f"{codec.name} decompressed to {len(plain)} bytes instead of {size}")
    return plain
