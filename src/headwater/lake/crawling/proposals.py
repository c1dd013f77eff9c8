"""What a crawl proposes: loads, each with the reasons why it is proposed as it is, and what was left out and why."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One load. `reasons` are sentences for the person who reads the lake.toml."""

    source: str
    into: str
    reasons: tuple[str, ...]
    mode: str = "append"
    key: tuple[str, ...] = ()
    newest_by: str | None = None
    event_time: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """All that was found in one place."""

    place: str
    proposals: tuple[Proposal, ...]
    left_out: tuple[str, ...] = ()
    bootstrap: str | None = None


def column_name(text: str) -> str:
    """A text as a plain name that SQL takes without quotes.

    >>> column_name("Orders-2024.v1"), column_name("2024")
    ('orders_2024_v1', '_2024')
    """
    name = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")
    return f"_{name}" if not name or name[0].isdigit() else name


def with_names_apart(proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
    """No two proposals share a table: orders, orders_2, orders_3."""
    taken: set[str] = set()
    apart = []
    for proposal in proposals:
        name, turn = proposal.into, 2
        while name in taken:
            name, turn = f"{proposal.into}_{turn}", turn + 1
        taken.add(name)
        apart.append(replace(proposal, into=name))
    return tuple(apart)


def lake_toml(crawl: Crawl, *, warehouse: str | None = None) -> str:
    """The text of a lake.toml, which `headwater lake run` takes as it is."""
    lines = [
        f"# Proposed by `headwater lake crawl {crawl.place}`.",
        "# Read it, change it, then `headwater lake run` it.",
    ]
    lines += ["", "[lake]"]
    if warehouse is not None:
        lines.append(f"warehouse = {_quoted(warehouse)}")
    if crawl.bootstrap is not None:
        lines.append(f"bootstrap = {_quoted(crawl.bootstrap)}")
    for proposal in crawl.proposals:
        lines += ["", *(f"# {reason}" for reason in proposal.reasons), "[[load]]", *_load_lines(proposal)]
    if crawl.left_out:
        lines += ["", "# Left out:", *(f"# - {words}" for words in crawl.left_out)]
    return "\n".join(lines) + "\n"


def _load_lines(proposal: Proposal) -> Iterable[str]:
    yield f"source = {_quoted(proposal.source)}"
    yield f"into = {_quoted(proposal.into)}"
    if proposal.mode != "append":
        yield f"mode = {_quoted(proposal.mode)}"
    if proposal.key:
        yield f"key = {_list(proposal.key)}"
    for name, value in (("newest_by", proposal.newest_by), ("event_time", proposal.event_time)):
        if value is not None:
            yield f"{name} = {_quoted(value)}"
    if proposal.options:
        entries = (f"{_bare(name)} = {_quoted(value)}" for name, value in proposal.options.items())
        yield f"options = {{ {', '.join(entries)} }}"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped) + '"'
