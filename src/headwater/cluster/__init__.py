"""What the cluster consists of: topics, settings, producer ids; and where that is kept.

`changes` and `image` are pure; a store (`embedded` for the single broker) makes changes durable behind one port.
"""
