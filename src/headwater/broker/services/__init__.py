"""What outlives a request: the partitions and their logs, waiting requests, fetch sessions, background jobs."""
