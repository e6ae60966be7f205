"""TensorBoard's events as bytes. tensorboardX writes them too, but it imports torch, which takes over a second.

An event file is a sequence of TFRecords, each with one Event, a protocol buffer: fields 1 wall_time, 2 step,
3 file_version, 5 summary (of values with 1 tag, 2 simple_value) and 7 session_log (1 status, of which START is 1).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

FILE_VERSION = "brain.Event:2"
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


def file_start(wall_time: float) -> bytes:
    """Return the event that an event file starts with."""
    return _double(1, wall_time) + _bytes(3, FILE_VERSION.encode())


def restart(wall_time: float, step: int) -> bytes:
    """Return the event after which TensorBoard no longer shows what was logged at `step` and later."""
    return _double(1, wall_time) + _varint(2, step) + _bytes(7, _varint(1, 1))


def scalars(wall_time: float, step: int, numbers: Mapping[str, float]) -> bytes:
    """Return the event of a step's numbers by name, in single precision."""
    with np.errstate(over="ignore"):  # infinite in single precision
        singles = np.array(list(numbers.values()), "<f8").astype("<f4")
    values = (
        _bytes(1, _bytes(1, name.encode()) + _key(2, _FLOAT) + value.tobytes())
        for name, value in zip(numbers, singles, strict=True)
    )
    return _double(1, wall_time) + _varint(2, step) + _bytes(5, b"".join(values))


def record(event: bytes) -> bytes:
    """Return a TFRecord: the length, its checksum, the event, its checksum."""
    length = struct.pack("<Q", len(event))
    return length + _masked_crc32c(length) + event + _masked_crc32c(event)


def _double(field: int, value: float) -> bytes:
    return _key(field, _DOUBLE) + struct.pack("<d", value)


def _varint(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _base_128(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _base_128(len(value)) + value


def _key(field: int, kind: int) -> bytes:
    return _base_128(field << 3 | kind)


def _base_128(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth bit says that another byte follows."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reversed
    return byte


_CRC_OF_BYTE = tuple(map(_crc_of_byte, range(256)))


def _masked_crc32c(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecords have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_OF_BYTE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)
