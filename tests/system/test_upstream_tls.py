"""TLS towards providers: whose certificate it must be, for endpoints given by address, by name, and with tls_server_name.

The provider with a certificate is another tributary, whose listener speaks TLS, in front of the echo provider.
"""
import subprocess

import pytest
from conftest import wait_until_true
from test_upstream_names import SAY, client_of, hosts, needs_namespace  # noqa: F401


@pytest.fixture
def authority(tmp_path):
    """authority.issue(names): paths of a certificate for those and of its key; authority.file: what to trust."""
    class Authority:
        file, key, count = tmp_path / "ca.pem", tmp_path / "ca.key", 0

        def openssl(self, *arguments):
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)

        def issue(self, names):
            self.count += 1
            key, request, cert = (tmp_path / f"{self.count}.{kind}" for kind in ("key", "csr", "pem"))
            extra = tmp_path / f"{self.count}.ext"
            extra.write_text(f"subjectAltName = {names}\n")
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test",
                         "-keyout", key, "-out", request)
            self.openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial",
                         "-days", "2", "-extfile", extra, "-out", cert)
            return cert, key
    made = Authority()
    made.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", "/CN=authority", "-keyout", made.key, "-out", made.file)
    return made


@pytest.fixture
def secure(tributary, echo, authority):
    """secure(names): where a provider with a certificate for those listens."""
    def start(names):
        cert, key = authority.issue(names)
        return tributary(echo(), listener=f"tls_cert = {cert}\ntls_key = {key}").target
    return start


def code_of(client):
    return client.call(SAY).code


@pytest.mark.parametrize("transport", ["h2", "http1"])
@pytest.mark.parametrize("names, more, code", [
    ("IP:127.0.0.1", "", 0),
    ("DNS:provider.test", "", 14),
    ("DNS:provider.test", "tls_server_name = provider.test", 0),
    ("DNS:other.test", "tls_server_name = provider.test", 14),
])
def test_an_endpoint_given_by_address(secure, authority, tributary, client_of, transport, names, more, code):  # noqa: F811
    target = secure(names)
    proxy = tributary(target, upstream=f"transport = {transport}\ntls = on\ntls_ca = {authority.file}\n{more}", route="call = unary")
    assert code_of(client_of(proxy)) == code
    if code == 0:
        assert proxy.endpoint(target)["state"] == "ready"


@needs_namespace
@pytest.mark.parametrize("names, more, code", [
    ("DNS:provider.test", "", 0),
    ("DNS:other.test", "", 14),
    ("DNS:other.test", "tls_server_name = other.test", 0),
])
def test_an_endpoint_given_by_name(authority, tributary, echo, secure, hosts, client_of, names, more, code):  # noqa: F811
    hosts.set(provider_test="127.0.0.1")
    port = secure(names).rpartition(":")[2]
    proxy = tributary(f"provider.test:{port}", upstream=f"tls = on\ntls_ca = {authority.file}\n{more}", route="call = unary")
    assert code_of(client_of(proxy)) == code


def test_an_unknown_authority_is_refused(secure, tributary, client_of):  # noqa: F811
    proxy = tributary(secure("IP:127.0.0.1"), upstream="tls = on", route="call = unary")
    assert code_of(client_of(proxy)) == 14


def test_turning_tls_on_by_reload_leaves_no_clear_connection(secure, authority, tributary, echo, client_of):  # noqa: F811
    target = secure("IP:127.0.0.1")
    proxy = tributary(target, route="call = unary")
    client = client_of(proxy)
    assert code_of(client) == 14  # clear text to a TLS port
    text = proxy.file.read_text().replace(f"endpoints = {target}", f"endpoints = {target}\ntls = on\ntls_ca = {authority.file}")
    assert proxy.reload(text)["error"] is None
    wait_until_true(lambda: code_of(client) == 0, "TLS to be used", 5)
    again = proxy.file.read_text().replace("tls = on\n", "").replace(f"tls_ca = {authority.file}\n", "")
    assert proxy.reload(again)["error"] is None
    wait_until_true(lambda: code_of(client) == 14, "clear text to be used again", 5)
