"""One load: look for what is new, infer, plan, write, and commit the position with the data."""
