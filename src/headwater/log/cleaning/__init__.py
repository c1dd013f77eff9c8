"""Compaction: which records of a log go, and the copy of what stays. See `cleaner.py`."""
