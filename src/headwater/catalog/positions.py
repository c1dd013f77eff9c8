"""Positions: how far a source has been loaded, as JSON in one spelling, so that equal positions are equal texts.

A position is a JSON object whose shape the kind of source decides, for example `{"topics": {"orders": {"0": 124}}}`
(the next offset to read) or `{"load": "<id of the last committed load>"}`. The catalog compares positions, it never
interprets them, with one exception: the files of a source are those of the loads that a chain of `{"load": …}` names.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from headwater.catalog.wire_json import read_json

Position: TypeAlias = Mapping[str, Any]
"""A JSON object that says how far a source has been loaded."""


def canonical(value: object) -> str:
    """The one spelling of a JSON value: sorted keys, no spaces, every character as itself."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shown(position: Position) -> str:
    """A position for people, who know the topics by their names and not by their ids."""
    return canonical({name: value for name, value in position.items() if name != "ids"})


def parse_position(text: str) -> Position:
    """The position that a JSON text spells; ValueError when it is no JSON object."""
    value = read_json(text.encode())
    if not isinstance(value, dict):
        raise ValueError(f"a position is a JSON object, not {text[:200]}")
    return value


def parse_positions(text: str) -> dict[str, Position | None]:
    """Source ids and their positions, null for a source without one; ValueError when the text is anything else."""
    value = parse_position(text)
    for source, position in value.items():
        if position is not None and not isinstance(position, dict):
            raise ValueError(f"the position of {source} is a JSON object or null, not {canonical(position)[:200]}")
    return dict(value)


def load_of(position: Position | None) -> str | None:
    """The load id of a position of the form `{"load": id}`; None for all others."""
    load_id = position.get("load") if position is not None else None
    return load_id if isinstance(load_id, str) else None
