"""The producer: records are gathered into batches, batches are sent to the leaders of their partitions.

`producer.py` is the asyncio client; `accumulator.py` gathers, `sender.py` sends.
"""
