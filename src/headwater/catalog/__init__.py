"""The lake's door: an Iceberg REST catalog whose commits are exactly once, and the ledger of loads."""
