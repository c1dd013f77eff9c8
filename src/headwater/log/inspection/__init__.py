"""A log's files as people see them: printed and checked, never changed."""
