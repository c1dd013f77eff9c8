"""What becomes of values whose type is not that of their column: a person decides, per table or per field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from headwater.lake.shapes.paths import SPILL_SUFFIX, join

Policy = Literal["corrupt", "columns", "string"]
"""`corrupt`: the field is null and the value's text is in `_rescued`. `columns`: the value is in a second column,
`<name>__string`. `string`: a new field of several types is a string column, with the text of what is no string."""

POLICIES: Final = get_args(Policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The policy of a table, and of single fields by path: `address.zip`, `items[].price`.

    With `rewrite`, a column of the policy `string` is turned into a string column as soon as values do not fit.
    """

    default: Policy = "corrupt"
    fields: Mapping[str, Policy] = field(default_factory=dict)
    rewrite: bool = False

    def __post_init__(self) -> None:
        for path, policy in (("", self.default), *self.fields.items()):
            if policy not in POLICIES:
                whose = f"field {path!r}" if path else "the table"
                raise ValueError(f"policy {policy!r} of {whose} is unknown; take one of {', '.join(POLICIES)}")

    def of(self, path: str) -> Policy:
        """The policy of one field."""
        return self.fields.get(path, self.default)

    def spill_of(self, parent: str, name: str) -> str | None:
        """The name of a field's second column, if it may have one."""
        return name + SPILL_SUFFIX if self.of(join(parent, name)) == "columns" else None

    def is_spill(self, parent: str, name: str) -> bool:
        """Whether a name is reserved for a second column: then a user's field of that name is rescued."""
        first = name.removesuffix(SPILL_SUFFIX)
        return first != name and self.spill_of(parent, first) is not None

    def to_json(self) -> str:
        """Canonical text, for options of a job."""
        plain = {"default": self.default, "fields": dict(self.fields), "rewrite": self.rewrite}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Policies:
        """The inverse of `to_json`; what is left out has its default."""
        plain = json.loads(text)
        fields = cast("dict[str, Policy]", plain.get("fields", {}))
        return cls(default=plain.get("default", "corrupt"), fields=fields, rewrite=plain.get("rewrite", False))
