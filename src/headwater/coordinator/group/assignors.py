"""The assignors that there are, by the names that members and `group.consumer.assignors` use."""

from collections.abc import Mapping
from typing import Final

from headwater.coordinator.group.assignor import Assignor
from headwater.coordinator.group.assignor_range import assign_ranges
from headwater.coordinator.group.assignor_uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
