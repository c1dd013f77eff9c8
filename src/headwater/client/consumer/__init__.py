"""The consumer: sans-IO cores and the asyncio client over them."""
