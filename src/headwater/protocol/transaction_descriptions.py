"""The DescribeTransactions response, v0, as it is on the wire; `messages.response_type` gives it instead of kio's.

kio reads the start time as a point in time and refuses the -1 that stands for "no transaction yet", which every
transactional id without one has.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from headwater.protocol.kafka_types import ErrorCode, ProducerId, i16, i32Timedelta, i64

from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse as KioResponse  # isort: skip
from kio.schema.describe_transactions.v0.response import TopicData  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip
from kio.static.constants import EntityType  # isort: skip

__all__ = ["DescribeTransactionsResponse", "TopicData", "TransactionState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """What the coordinator knows of one transactional id."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar = KioResponse.__version__
    __flexible__: ClassVar = KioResponse.__flexible__
    __api_key__: ClassVar = KioResponse.__api_key__
    __header_schema__: ClassVar = KioResponse.__header_schema__
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    transactional_id: TransactionalId = field(metadata={"kafka_type": "string"})
    transaction_state: str = field(metadata={"kafka_type": "string"})
    transaction_timeout: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    transaction_start_time_ms: i64 = field(metadata={"kafka_type": "int64"})
    producer_id: ProducerId = field(metadata={"kafka_type": "int64"})
    producer_epoch: i16 = field(metadata={"kafka_type": "int16"})
    topics: tuple[TopicData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse:
    """One state for each transactional id that was asked for."""

    __type__: ClassVar = KioResponse.__type__
    __version__: ClassVar = KioResponse.__version__
    __flexible__: ClassVar = KioResponse.__flexible__
    __api_key__: ClassVar = KioResponse.__api_key__
    __header_schema__: ClassVar = KioResponse.__header_schema__
    throttle_time: i32Timedelta = field(metadata={"kafka_type": "timedelta_i32"})
    transaction_states: tuple[TransactionState, ...]
