"""A log on its way to another log dir. See `replica_move.py`."""
