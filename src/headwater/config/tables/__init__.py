"""The tables themselves, one module for each theme. Facts only: nothing here reads or checks a value."""
