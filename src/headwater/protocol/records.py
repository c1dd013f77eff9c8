"""Magic-2 record batches: everything that the rest of headwater needs to know about their bytes.

The parts are modules of their own (batches, record_reading, record_decoding, record_columns, record_encoding); code
outside of this package imports from here.
"""

from headwater.protocol.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    RefusedBatchError,
    check_batches,
    check_produced,
    crc_is_valid,
    next_header,
    parse_header,
    patch_append_time,
    patch_max_timestamp,
    patch_offsets,
    scan_headers,
)
from headwater.protocol.record_checking import (
    RecordProblem,
    RecordProblems,
    RefusedRecordsError,
    check_records,
    check_stored_records,
)
from headwater.protocol.record_columns import BinaryColumn, RecordColumns, decode_columns, join_columns
from headwater.protocol.record_decoding import Record, decode_records, records_section, unpack_section
from headwater.protocol.record_encoding import RecordToWrite, encode_batch, recompress
from headwater.protocol.record_reading import DECOMPRESSED_LIMIT_BYTES, RecordHeaders, UnpackedTooLargeError

__all__ = [
    "COMPRESSION_MASK",
    "DECOMPRESSED_LIMIT_BYTES",
    "HEADER_SIZE",
    "LOG_APPEND_TIME_FLAG",
    "LOG_OVERHEAD",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "BinaryColumn",
    "CorruptBatchError",
    "Record",
    "RecordColumns",
    "RecordHeaders",
    "RecordProblem",
    "RecordProblems",
    "RecordToWrite",
    "RefusedBatchError",
    "RefusedRecordsError",
    "UnpackedTooLargeError",
    "check_batches",
    "check_produced",
    "check_records",
    "check_stored_records",
    "crc_is_valid",
    "decode_columns",
    "decode_records",
    "encode_batch",
    "join_columns",
    "next_header",
    "parse_header",
    "patch_append_time",
    "patch_max_timestamp",
    "patch_offsets",
    "recompress",
    "records_section",
    "scan_headers",
    "unpack_section",
]
