"""Round robin: all partitions of all topics are dealt to the members in turn. Pure; the same result as Java's."""

from collections.abc import Iterable

from headwater.client.consumer.assignors.assignor import Assignments, Members, Topics
from headwater.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's `roundrobin`."""

    name = "roundrobin"
    cooperative = False

    def assign(self, topics: Topics, members: Members) -> Assignments:
        """Deals the partitions, topics by name; a member that does not want a topic is passed over."""
        assignments: Assignments = {member: [] for member in members}
        order = in_member_order(members)
        wanted = {member: frozenset(subscription.topics) for member, subscription in members.items()}
        turn = 0
        for topic in sorted(frozenset[str]().union(*wanted.values())):
            for number in range(len(topics.get(topic, ()))):
                while topic not in wanted[order[turn % len(order)]]:
                    turn += 1
                assignments[order[turn % len(order)]].append(TopicPartition(topic, number))
                turn += 1
        return assignments

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """None: who had what does not matter."""
        return None


def in_member_order(members: Members) -> list[str]:
    """Static members by instance id, then the others by member id: a restart leaves a static member in its place."""

    def place(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return instance_id is None, member if instance_id is None else instance_id

    return sorted(members, key=place)
