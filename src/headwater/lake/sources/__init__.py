"""Where data comes from, and how each source knows what is new."""
