"""Calls of NVIDIA's video libraries on host threads: encoder, decoder, JPEG.

No capture was at hand: the tables are those of real exports without events.
"""

from __future__ import annotations

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.database import Table
from nsys2prv_ng.sources.base import EventRows, Reading, Result, Source
from nsys2prv_ng.sources.host_calls import add_calls

_COLUMNS = ("start", "end", "globalTid", "nameId")
TYPES = {
    "NVVIDEO_ENCODER_API": types.VIDEO_ENCODER_CALL,
    "NVVIDEO_DECODER_API": types.VIDEO_DECODER_CALL,
    "NVVIDEO_JPEG_API": types.VIDEO_JPEG_CALL,
}


def read(reading: Reading) -> Result:
    """An interval for each call, nested as the calls of its library were."""
    result = Result()
    for table, event_type in TYPES.items():
        add_calls(reading, result, table, event_type)
    return result


SOURCE = Source(
    "video",
    "Video encoding and decoding",
    tuple(Table(table, _COLUMNS) for table in TYPES),
    read,
    rows=tuple(EventRows(table, "globalTid") for table in TYPES),
    row="calls",
)
