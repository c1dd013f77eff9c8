"""The same cases against headwater and against Apache Kafka: what differs is a bug of ours."""
