"""A look at the log folder that the demo's broker leaves behind: its tree, an index, and the first batch decoded."""

import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_screen import Screen
from headwater.cli.output import bytes_for_people, counted
from headwater.protocol.records import BatchHeader, CorruptBatchError, crc_is_valid, decode_records, parse_header

_NAME_WIDTH: Final = 39
_VALUE_WIDTH: Final = 58
_OFFSET_ENTRY: Final = struct.Struct(">II")
_TIME_ENTRY: Final = struct.Struct(">qI")
_MEANINGS: Final = {
    ".log": "the records, in batches",
    ".snapshot": "each producer's last batches",
    "leader-epoch-checkpoint": "which leader wrote from where",
    "partition.metadata": "the topic's id",
    "headwater-metadata.jsonl": "topics and their settings",
    "meta.properties": "whose folder this is",
    "recovery-point-offset-checkpoint": "what is surely on disk",
    "log-start-offset-checkpoint": "where the logs begin",
    "replication-offset-checkpoint": "what is committed",
    ".kafka_cleanshutdown": "no need to check the logs",
}

_INTERNAL: Final = {
    "__consumer_offsets": "how far groups have come",
    "__transaction_state": "transactions and their ends",
}


def show_folder(screen: Screen, data: Path, partition: str) -> None:
    """The files, with one partition's folder opened; internal topics only as a whole."""
    screen.line((str(data), "bold"))
    entries = sorted(data.iterdir(), key=lambda entry: (entry.is_file(), entry.name))
    internal = [entry for entry in entries if entry.name.startswith("__")]
    entries = [entry for entry in entries if entry.name != ".lock" and entry not in internal]
    for topic, meaning in _INTERNAL.items():
        folders = [entry for entry in internal if entry.name.startswith(topic)]
        size = bytes_for_people(sum(file.stat().st_size for folder in folders for file in folder.iterdir()))
        _show_entry(screen, "├── ", f"{topic}-*/", size, f"{len(folders)} partitions: {meaning}", style="bold blue")
    for number, entry in enumerate(entries, start=1):
        last = number == len(entries)
        branch, trunk = ("└── ", "    ") if last else ("├── ", "│   ")
        if entry.name == partition:
            screen.line((branch, "dim"), (f"{entry.name}/", "bold blue"))
            inside = sorted(entry.iterdir())
            for place, file in enumerate(inside, start=1):
                _show_file(screen, trunk + ("└── " if place == len(inside) else "├── "), file)
        elif entry.is_dir():
            size = bytes_for_people(sum(file.stat().st_size for file in entry.iterdir()))
            _show_entry(screen, branch, f"{entry.name}/", size, "", style="bold blue")
        else:
            _show_file(screen, branch, entry)


def show_index(screen: Screen, folder: Path) -> None:
    """The first entries of an offset index: what a look-up searches."""
    entries = list(_OFFSET_ENTRY.iter_unpack(_first(folder, ".index").read_bytes()))
    if not entries:
        screen.line(("  empty: the first entry comes with the first batch that begins after 4 KiB", "dim"))
    for offset, position in entries[:2]:
        screen.line(f"  the batch that ends at offset {offset:,} begins at byte {position:,}")
    if len(entries) > 2:
        screen.line((f"  … {len(entries) - 2:,} more: one a batch, as these are large; at most one in 4 KiB", "dim"))


def show_first_batch(screen: Screen, folder: Path) -> None:
    """The header of the first batch and a few of its records; DemoError when its checksum is wrong."""
    log = _first(folder, ".log")
    with log.open("rb") as file:
        content = file.read(4 << 20)
    try:
        header = parse_header(content, 0, len(content))
        intact = crc_is_valid(content, header)
        records = decode_records(content, header)
    except CorruptBatchError as error:
        raise DemoError(f"the first batch of {log} cannot be read: {error}") from None
    if not intact:
        raise DemoError(f"the first batch of {log} has a wrong checksum")
    for name, value in _header_facts(header):
        screen.line(f"  {name:<13}", value)
    screen.line(f"  {'CRC-32C':<13}{header.crc:08x} ", ("ok", "bold green"))
    for record in (records[0], records[-1]) if len(records) > 1 else records:
        value = (record.value or b"").decode()[:_VALUE_WIDTH]
        screen.line(f"  offset {record.offset:<6,}", (value, "cyan"), ("…", "dim"))


def _header_facts(header: BatchHeader) -> Iterator[tuple[str, str]]:
    yield "offsets", f"{header.base_offset:,} to {header.last_offset:,} ({counted(header.records_count, 'record')})"
    yield "size", f"{header.size:,} bytes, magic {header.magic}"
    yield "written", _time(header.max_timestamp_ms)
    yield (
        "producer",
        f"id {header.producer_id}, epoch {header.producer_epoch}, first sequence number {header.base_sequence}",
    )


def _show_file(screen: Screen, branch: str, file: Path) -> None:
    size = file.stat().st_size
    if file.suffix == ".index":
        meaning = f"offset → position, {_entries(size // _OFFSET_ENTRY.size)}"
    elif file.suffix == ".timeindex":
        meaning = f"time → offset, {_entries(size // _TIME_ENTRY.size)}"
    else:
        meaning = _MEANINGS.get(file.name) or _MEANINGS.get(file.suffix, "")
    _show_entry(screen, branch, file.name, bytes_for_people(size), meaning)


def _show_entry(screen: Screen, branch: str, name: str, size: str, meaning: str, *, style: str = "") -> None:
    width = _NAME_WIDTH - len(branch)
    screen.line((branch, "dim"), (name.ljust(width), style), size.rjust(9), (f"  {meaning}".rstrip(), "dim"))


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _first(folder: Path, suffix: str) -> Path:
    files = sorted(folder.glob(f"*{suffix}"))
    if not files:
        raise DemoError(f"{folder} has no {suffix} file")
    return files[0]


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(" ", "milliseconds")
