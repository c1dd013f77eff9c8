"""Kafka's `ssl.*` settings have the effect that they have in Java, or are refused with what to use instead."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.aio import Admin, Consumer, Producer
from headwater.client.configured import connection_settings
from headwater.config.client import ADMIN, resolve
from headwater.config.errors import ConfigError, UnknownConfigError

PASSWORD = "s3cret"


class Files(NamedTuple):
    """A certificate for localhost that signs itself, its key, the same key encrypted, and both in one file."""

    certificate: Path
    key: Path
    encrypted_key: Path
    both: Path
    both_encrypted: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    names = Files(*(folder / f"{name}.pem" for name in Files._fields))
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    openssl(f"{make} -keyout {names.key} -out {names.certificate}")
    openssl(f"openssl pkcs8 -topk8 -in {names.key} -out {names.encrypted_key} -passout pass:{PASSWORD}")
    for both, key in ((names.both, names.key), (names.both_encrypted, names.encrypted_key)):
        both.write_text(key.read_text() + names.certificate.read_text())
    return names


def openssl(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


def context_for(**settings: object) -> ssl.SSLContext:
    values = resolve(ADMIN, {"security_protocol": "SSL", **settings})
    context = connection_settings(values, client_id="test").security.tls
    assert context is not None
    return context


def handshake(
    client: ssl.SSLContext, files: Files, *, asks_who: bool = False, name: str = "localhost"
) -> ssl.SSLObject:
    """The client's end of a TLS connection to a broker with that certificate."""
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(files.both)
    if asks_who:
        broker.verify_mode = ssl.CERT_REQUIRED
        broker.load_verify_locations(files.certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname=name), broker.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].cipher() is not None
    if asks_who:
        assert ends[1].getpeercert()
    return ends[0]


def test_trust_is_a_file_or_text(files: Files) -> None:
    handshake(context_for(ssl_truststore_location=str(files.certificate), ssl_truststore_type="PEM"), files)
    handshake(context_for(ssl_truststore_certificates=files.certificate.read_text()), files)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context_for(), files)


def test_the_name_in_the_certificate_counts_unless_told_not_to(files: Files) -> None:
    trust = {"ssl_truststore_location": str(files.certificate)}
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context_for(**trust), files, name="kafka.example")
    handshake(context_for(**trust, ssl_endpoint_identification_algorithm=""), files, name="kafka.example")


def test_who_the_client_is_comes_from_a_file_or_text_also_encrypted(files: Files) -> None:
    trust = {"ssl_truststore_location": str(files.certificate)}
    texts = {
        "ssl_keystore_certificate_chain": files.certificate.read_text(),
        "ssl_keystore_key": files.encrypted_key.read_text(),
    }
    for who in (
        {"ssl_keystore_location": str(files.both), "ssl_keystore_type": "PEM"},
        {"ssl_keystore_location": str(files.both_encrypted), "ssl_key_password": PASSWORD},
        {**texts, "ssl_keystore_key": files.key.read_text()},
        {**texts, "ssl_key_password": PASSWORD},
    ):
        handshake(context_for(**trust, **who), files, asks_who=True)
    with pytest.raises(ConfigError, match=r"the private key is encrypted: set ssl\.key\.password"):
        context_for(**trust, **texts)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key cannot be used"):
        context_for(**trust, **texts, ssl_key_password="wrong")


@pytest.mark.parametrize(
    ("settings", "spoken"),
    [
        ({}, "TLSv1.3"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": ["TLSv1.3"]}, "TLSv1.3"),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2"),
    ],
)
def test_versions_are_those_that_are_enabled(files: Files, settings: dict[str, object], spoken: str) -> None:
    context = context_for(ssl_truststore_location=str(files.certificate), **settings)
    assert handshake(context, files).version() == spoken


@pytest.mark.parametrize(
    ("suite", "openssl_name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_go_by_javas_names_and_openssls(suite: str, openssl_name: str) -> None:
    context = context_for(ssl_cipher_suites=suite)
    chosen = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert chosen == {openssl_name}
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_a_suite_is_what_is_spoken(files: Files) -> None:
    suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    context = context_for(ssl_truststore_location=str(files.certificate), ssl_cipher_suites=suites)
    cipher = handshake(context, files).cipher()
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-RSA-AES")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"ssl.truststore.type": "JKS"},
            r"ssl\.truststore\.type = 'JKS' is not allowed: it must be PEM, .* convert it",
        ),
        ({"ssl.keystore.type": "PKCS12"}, "it must be PEM"),
        ({"ssl.truststore.password": "x"}, "PEM here, which has no password; leave it out"),
        ({"ssl.keystore.password": "x"}, r"the key alone may have a password: ssl\.key\.password"),
        ({"ssl.engine.factory.class": "x"}, r"security=headwater\.client\.security\.Security\(tls="),
        ({"ssl.keymanager.algorithm": "SunX509"}, "OpenSSL"),
        ({"ssl.enabled.protocols": "TLSv1"}, r"a list of TLSv1\.2, TLSv1\.3"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "older than all of"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, r"cannot choose among the suites of TLSv1\.3"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH"}, "names TLS_NO_SUCH, which"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "one of https"),
        ({"ssl.keystore.key": "x"}, "belong together"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "the same thing twice"),
        ({"ssl.truststore.certificates": "nonsense"}, r"ssl\.truststore\.certificates cannot be used"),
        ({"ssl.keystore.location": "/nowhere/me.pem"}, r"ssl\.keystore\.location .* cannot be used \(No such file"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_with_what_to_do(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        context_for(**settings)
    assert not isinstance(refused.value, UnknownConfigError)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url"])
def test_sasl_says_that_mechanisms_come_later(client: type[Producer | Consumer | Admin], name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{name} is not taken yet: mechanisms of SASL come with a later.*sasl="
    ) as no:
        client.from_config({"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_SSL", name: "x"})
    assert not isinstance(no.value, UnknownConfigError)
