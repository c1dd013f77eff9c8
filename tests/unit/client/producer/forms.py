"""The core of the producer in both of its forms: compiled, as users run it, and plain, without Cython."""

from types import ModuleType
from typing import Any

from both_forms import PRODUCER, load_compiled, load_plain


class Core:
    """The modules of the producer's core in one form, as attributes."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.record_writing: Any = modules["headwater.protocol.record_writing"]
        self.partitioners: Any = modules["headwater.client.producer.partitioners"]
        self.handles: Any = modules["headwater.client.producer.handles"]
        self.batch_building: Any = modules["headwater.client.producer.batch_building"]
        self.accumulator: Any = modules["headwater.client.producer.accumulator"]
        self.sending: Any = modules["headwater.client.producer.sending"]

    def accumulator_with(self, **settings: Any) -> Any:
        """An accumulator whose clock stands at 0, with small batches."""
        defaults: dict[str, Any] = {
            "batch_size": 1024,
            "linger_ms": 5,
            "buffer_memory": 1 << 20,
            "compression": 0,
            "compression_level": None,
            "wake": lambda: None,
            "clock_ms": lambda: 0,
            "chance": lambda: 0.5,
        }
        return self.accumulator.Accumulator(**(defaults | settings))


def plain_core() -> Core:
    return Core(load_plain(PRODUCER))


def compiled_core() -> Core:
    return Core(load_compiled(PRODUCER))
