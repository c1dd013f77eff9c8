"""Our way of writing a response gives the bytes that kio gives, for every response in every version."""

import io
import random

import pytest
from kio.serial import entity_writer as kio_writer

from headwater.protocol import entity_writing, messages
from headwater.protocol.apis import Api
from kafka_messages import EVERY_VERSION, name_of, some_entity


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION, ids=name_of)
def test_the_bytes_are_kios(api: Api, version: int) -> None:
    entity = messages.response_type(api.key, version)
    for seed in range(6):
        value = some_entity(entity, random.Random(seed))
        expected = io.BytesIO()
        kio_writer(entity)(expected, value)
        parts: list[bytes] = []
        entity_writing.entity_writer(entity)(parts, value)
        assert b"".join(parts) == expected.getvalue()
