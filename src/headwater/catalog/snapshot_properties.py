"""What a commit of a load says in its snapshot's properties; `commits` has the rules that go with them."""

from typing import Final

from headwater.catalog.positions import canonical

EXPECT: Final = "headwater.expect"
"""The positions that the writer has read."""
OFFSETS: Final = "headwater.offsets"
"""What they become."""
LOAD: Final = "headwater.load"
REPLACES: Final = "headwater.replaces"


def state_replaced(*, schema_id: int, snapshot_id: int | None) -> str:
    """The value of `headwater.replaces`: the table as it was read."""
    return canonical({"schema": schema_id, "snapshot": snapshot_id})
