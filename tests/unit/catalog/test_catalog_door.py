"""The catalog's door: only requests for this server, from no web page, with a body it can bear, are let in."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog_parts import error_of
from headwater.catalog import connections
from headwater.catalog.client import CatalogClient, CatalogError
from headwater.catalog.doorkeeping import Door, DoorRules, allowed_name, names_of_listener
from headwater.catalog.server import EmbeddedCatalog

JSON = {"Content-Type": "application/json"}
NAMESPACE = b'{"namespace": ["evil"], "properties": {}}'
OUR_PORT = 8181


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCatalog]:
    folder = tmp_path_factory.mktemp("door")
    with EmbeddedCatalog(str(folder / "catalog.db"), str(folder / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def http(embedded: EmbeddedCatalog) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=embedded.uri, trust_env=False) as client:
        yield client


def raw(uri: str, request: bytes, *, timeout_s: float = 20) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    host, port = uri.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        "localhost.evil.example:{port}",
        "[::1",
        "",
        "127.0.0.1:{port}:80",
    ],
)
def test_a_request_for_another_host_is_refused(http: httpx.Client, host: str) -> None:
    answer = http.get("/v1/config", headers={"Host": host.format(port=http.base_url.port)})
    assert error_of(answer)[0] in (400, 403)
    assert "allow-host" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_loopback_has_three_names(http: httpx.Client, host: str) -> None:
    assert http.get("/v1/config", headers={"Host": host.format(port=http.base_url.port)}).status_code == 200


@pytest.mark.parametrize("lines", [b"", b"Host: 127.0.0.1:%d\r\nHost: 127.0.0.1:%d\r\n"])
def test_a_request_names_its_host_once(embedded: EmbeddedCatalog, lines: bytes) -> None:
    port = int(embedded.uri.rpartition(":")[2])
    filled = lines % (port, port) if lines else lines
    answer = raw(embedded.uri, b"GET /v1/config HTTP/1.1\r\n" + filled + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 "), answer


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_from_elsewhere_is_refused(http: httpx.Client, headers: dict[str, str]) -> None:
    for answer in (
        http.get("/v1/config", headers=headers),
        http.post("/v1/namespaces", content=NAMESPACE, headers={**JSON, **headers}),
    ):
        assert error_of(answer)[:2] == (403, "ForbiddenException")
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert ["evil"] not in http.get("/v1/namespaces").json()["namespaces"]


def test_the_servers_own_page_is_let_in(http: httpx.Client) -> None:
    own = {"Origin": str(http.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert http.get("/v1/config", headers=own).status_code == 200


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain;application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/json; charset=utf-16",
        "application/vnd.apache.arrow.stream",
        "",
        None,
    ],
)
def test_a_body_that_a_form_could_send_is_refused(http: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    status, _, message = error_of(http.post("/v1/namespaces", content=NAMESPACE, headers=headers))
    assert status == 415
    assert message.endswith(" for files), not " + ("without a Content-Type" if kind is None else repr(kind)))
    assert ["evil"] not in http.get("/v1/namespaces").json()["namespaces"]


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=UTF-8"])
def test_json_is_accepted(http: httpx.Client, kind: str) -> None:
    named = b'{"namespace": ["n%d"]}' % len(kind)
    assert http.post("/v1/namespaces", content=named, headers={"Content-Type": kind}).status_code == 200


def test_a_packed_body_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/namespaces", content=b"\x1f\x8b", headers={**JSON, "Content-Encoding": "gzip"})
    assert error_of(answer)[0] == 415


def test_a_body_has_a_largest_size_however_it_is_sent(http: httpx.Client) -> None:
    large = b" " * ((16 << 20) + 1)
    assert error_of(http.post("/v1/namespaces", content=large, headers=JSON))[0] == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(17):
            yield large[: 1 << 20]

    assert error_of(http.post("/v1/namespaces", content=chunks(), headers=JSON))[0] == 413
    assert http.get("/v1/config").status_code == 200


def test_a_length_is_one_number(embedded: EmbeddedCatalog) -> None:
    port = int(embedded.uri.rpartition(":")[2])
    for length in (b"-1", b"+2", b"0x2", b"2, 3", b"9" * 400):
        head = b"POST /v1/namespaces HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n" % port
        answer = raw(embedded.uri, head + b"Connection: close\r\nContent-Length: " + length + b"\r\n\r\n{}")
        assert answer[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 413 "), answer


def test_without_its_token_a_jobs_catalog_serves_nobody(tmp_path: Path) -> None:
    with EmbeddedCatalog(str(tmp_path / "c.db"), str(tmp_path / "w"), token="s3cret") as catalog:
        for given in (None, "", "Bearer", "Bearer s3cre", "Bearer s3cretx", "Basic s3cret", "s3cret"):
            headers = {} if given is None else {"Authorization": given}
            for path in ("/v1/config", "/v1/namespaces", "/headwater/v1/loads", "/elsewhere"):
                answer = httpx.get(catalog.uri + path, headers=headers, trust_env=False)
                assert error_of(answer)[:2] == (401, "NotAuthorizedException"), given
        with CatalogClient(catalog.uri, token="s3cret") as client:
            assert client.loads() == []
        with CatalogClient(catalog.uri, token="other") as client, pytest.raises(CatalogError, match="token"):
            client.loads()


def test_a_head_that_never_ends_is_not_waited_for(embedded: EmbeddedCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.2)
    for begun in (b"", b"GET /v1/config HTTP/1.1\r\nHost:"):
        with suppress(ConnectionResetError):
            assert raw(embedded.uri, begun) == b""
    assert httpx.get(f"{embedded.uri}/v1/config", trust_env=False).status_code == 200


def test_who_does_not_read_an_answer_is_not_waited_for(
    embedded: EmbeddedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"namespace": ["large"], "properties": {"comment": "x" * (8 << 20)}}
    assert httpx.post(f"{embedded.uri}/v1/namespaces", json=large, trust_env=False).status_code == 200
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.2)
    host, port = embedded.uri.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect((host, int(port)))
        client.sendall(b"GET /v1/namespaces/large HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % int(port))
        time.sleep(1)
        received = 0
        with suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                received += len(part)
        assert received < 8 << 20, "the answer was kept for who did not read it"
    # Who reads slowly, but reads, gets all of it.
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 2.0)
    with httpx.stream("GET", f"{embedded.uri}/v1/namespaces/large", trust_env=False) as answer:
        assert sum(map(len, answer.iter_bytes(1 << 20))) > 8 << 20


def test_a_head_has_a_largest_size(embedded: EmbeddedCatalog) -> None:
    with suppress(ConnectionError):
        answer = raw(embedded.uri, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20))
        assert answer.startswith(b"HTTP/1.1 4"), answer


def test_connections_are_bounded(embedded: EmbeddedCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    with httpx.Client(base_url=embedded.uri, trust_env=False) as first:
        assert first.get("/v1/config").status_code == 200
        host, port = embedded.uri.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
        # Those above the bound are closed, and whoever was there before is still served.
        assert [each.recv(1) for each in held[1:]] == [b"", b""]
        assert first.get("/v1/config").status_code == 200
        for each in held:
            each.close()


def knocked(rules: DoorRules, *, server: tuple[str, int] = ("127.0.0.1", OUR_PORT), **request: Any) -> httpx.Response:
    """The answer of a door to one request, with an app behind it that tells the size of the body."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        size = len((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(size).encode()})

    door = Door(app, rules)

    async def at_address(scope: Any, receive: Any, send: Any) -> None:
        await door({**scope, "server": server}, receive, send)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(at_address)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{OUR_PORT}") as client:
            return await client.request(**{"method": "POST", "url": "/v1/namespaces", "headers": JSON, **request})

    answer = asyncio.run(ask())
    assert door._kept_bytes == 0
    return answer


def test_a_body_must_come_in_time() -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    began = time.monotonic()
    answer = knocked(DoorRules(body_timeout_s=0.1), content=drip())
    assert (error_of(answer)[0], time.monotonic() - began < 5) == (408, True)


def test_the_size_of_bodies_is_the_operators_choice() -> None:
    assert knocked(DoorRules(most_body_bytes=10), content=b"x" * 10).text == "10"
    assert "at most 10 bytes" in error_of(knocked(DoorRules(most_body_bytes=10), content=b"x" * 11))[2]


@pytest.mark.parametrize(
    ("rules", "server", "host", "is_served"),
    [
        (DoorRules(), ("10.0.0.5", OUR_PORT), f"10.0.0.5:{OUR_PORT}", True),
        (DoorRules(), ("10.0.0.5", OUR_PORT), f"localhost:{OUR_PORT}", False),
        (DoorRules(), ("::ffff:127.0.0.1", OUR_PORT), f"127.0.0.1:{OUR_PORT}", True),
        (DoorRules(), ("fe80::1", OUR_PORT), f"[fe80::1]:{OUR_PORT}", True),
        (DoorRules(), ("10.0.0.5", 80), "10.0.0.5", True),
        (DoorRules(), ("10.0.0.5", OUR_PORT), f"catalog:{OUR_PORT}", False),
        (DoorRules(names=frozenset({"catalog"})), ("10.0.0.5", OUR_PORT), "catalog:443", True),
        (DoorRules(names=frozenset({"catalog:8181"})), ("10.0.0.5", OUR_PORT), "catalog:8181", True),
        (DoorRules(names=frozenset({"catalog:8181"})), ("10.0.0.5", OUR_PORT), "catalog:8182", False),
    ],
)
def test_a_server_is_known_by_its_address_and_by_names_that_are_allowed(
    rules: DoorRules, server: tuple[str, int], host: str, is_served: bool
) -> None:
    answer = knocked(rules, server=server, method="GET", headers={"Host": host})
    assert answer.status_code == (200 if is_served else 403)


def test_names_are_said_as_clients_have_them() -> None:
    assert (allowed_name("Catalog.example"), allowed_name("catalog:81")) == ("catalog.example", "catalog:81")
    for wrong in ("", "http://catalog", "a b", "catalog:", "catalog:99999999", "*"):
        with pytest.raises(ValueError, match="is no host"):
            allowed_name(wrong)
    assert names_of_listener("127.0.0.1") == frozenset()
    assert names_of_listener("catalog.example") == {"catalog.example", socket.gethostname().lower()}
