"""PURE. Groups, offsets and transactions: a request is decided, its records are appended, replay changes the state."""
