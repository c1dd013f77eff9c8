"""Chooses the membership that `group.protocol` asks for."""

from collections.abc import Callable

from headwater.client.client import Client
from headwater.client.consumer.classic_membership import ClassicMembership
from headwater.client.consumer.consumer_membership import ConsumerMembership
from headwater.client.consumer.group_statistics import GroupStatistics
from headwater.client.consumer.membership import Membership, Offsets
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.consumer.subscription import SubscriptionState


def membership_for(
    client: Client,
    subscription: SubscriptionState,
    settings: ConsumerSettings,
    wake: Callable[[], None] = lambda: None,
    *,
    statistics: GroupStatistics | None = None,
    on_committed: Callable[[Offsets], None] = lambda _: None,
) -> Membership:
    """The place of a consumer in the group that its settings name.

    `wake` is called when a poll is needed, `on_committed` with the offsets of every commit that the group has taken.
    """
    kind = ConsumerMembership if settings.group_protocol.lower() == "consumer" else ClassicMembership
    return kind(
        client, subscription, settings, wake, statistics=statistics or GroupStatistics(), on_committed=on_committed
    )
