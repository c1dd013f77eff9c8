"""Consumer groups and their offsets: one shard for each partition of `__consumer_offsets`."""
