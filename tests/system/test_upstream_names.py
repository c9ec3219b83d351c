"""Endpoints given by name and by file: looked up off the loop, again and again, and followed when they move.

The names come from a hosts file of the test's own, which is put over the system's in a mount namespace; that needs root.
"""
import os
import shutil
import stat
import subprocess
import time

import pytest
from conftest import binary, find_free_port, wait_until_true
from h2peer import Client, Provider, either

SAY = "/tributary.demo.Echo/Say"
WRAPPER = """#!/bin/sh
exec unshare -m sh -c 'mount --bind {folder}/hosts /etc/hosts && mount --bind {folder}/nsswitch.conf /etc/nsswitch.conf &&
    exec {binary} "$@"' sh "$@"
"""


def may_unshare():
    return shutil.which("unshare") and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


needs_namespace = pytest.mark.skipif(not may_unshare(), reason="no right to a mount namespace (unshare -m)")


class Hosts:
    """The proxy's /etc/hosts."""

    def __init__(self, folder):
        self.file = folder / "hosts"

    def set(self, **names):
        """name="127.0.0.2" or a list of addresses; '_' in a name stands for '.'"""
        lines = ["127.0.0.1 localhost"]
        for name, addresses in names.items():
            for address in [addresses] if isinstance(addresses, str) else addresses:
                lines.append(f"{address} {name.replace('_', '.')}")
        with open(self.file, "w") as file:  # in place: the mount is of this very file
            file.write("\n".join(lines) + "\n")


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    real = Hosts(tmp_path)
    real.set()
    (tmp_path / "nsswitch.conf").write_text("hosts: files\n")
    wrapper = tmp_path / "in-namespace"
    wrapper.write_text(WRAPPER.format(folder=tmp_path, binary=binary()))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRIBUTARY_BIN", str(wrapper))
    return real


@pytest.fixture
def two_hosts(echo):
    """Providers on 127.0.0.2 and 127.0.0.3, the same port."""
    for _ in range(20):
        port = find_free_port("127.0.0.2")
        if os.system(f"ss -ltn | grep -q '127.0.0.[23]:{port} '"):
            break
    return port, echo("--bind", "127.0.0.2", "--port", port), echo("--bind", "127.0.0.3", "--port", port)


def endpoints(proxy, upstream="echo"):
    return proxy.stats()["upstreams"].get(upstream, {}).get("endpoints", {})


@pytest.fixture
def client_of():
    made = []

    def make(proxy):
        made.append(Client(proxy.target))
        return made[-1]
    yield make
    for each in made:
        each.close()


@needs_namespace
@pytest.mark.parametrize("discovery", ["static", "dns"])
def test_a_name_is_known_when_the_proxy_is_ready(hosts, two_hosts, tributary, client_of, discovery):
    port, _, _ = two_hosts
    hosts.set(provider_test="127.0.0.2")
    proxy = tributary(f"provider.test:{port}", upstream=f"discovery = {discovery}", route="call = unary")
    client_of(proxy).call(SAY).says(0, ["hi"])
    assert list(endpoints(proxy)) == [f"127.0.0.2:{port}"]


@needs_namespace
def test_a_provider_that_moved_is_followed(hosts, two_hosts, tributary, client_of):
    """The old address refuses: looked up again within a second."""
    port, first, _ = two_hosts
    hosts.set(provider_test="127.0.0.2")
    proxy = tributary(f"provider.test:{port}", upstream="discovery = dns", route="call = unary")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    hosts.set(provider_test="127.0.0.3")
    first.stop()
    gone = time.monotonic()
    wait_until_true(lambda: client.call(SAY).code == 0, "the new address", 5)
    assert time.monotonic() - gone < 3
    wait_until_true(lambda: list(endpoints(proxy)) == [f"127.0.0.3:{port}"], "the old address to go")


@needs_namespace
def test_all_addresses_of_a_name_are_used_and_a_dead_one_skipped(hosts, two_hosts, tributary, client_of):
    port, _, _ = two_hosts
    hosts.set(provider_test=["127.0.0.2", "127.0.0.3", "127.0.0.4"])
    proxy = tributary(f"provider.test:{port}", upstream="lb_policy = round_robin", route="call = unary")
    client = client_of(proxy)
    for _ in range(30):
        client.call(SAY).says(0, ["hi"])
    seen = endpoints(proxy)
    assert sorted(seen) == [f"127.0.0.{n}:{port}" for n in (2, 3, 4)]
    assert seen[f"127.0.0.4:{port}"]["state"] == "backoff"
    assert all(seen[f"127.0.0.{n}:{port}"]["upstream_us"]["count"] >= 10 for n in (2, 3))


@needs_namespace
def test_an_unknown_name_is_unavailable_until_it_is_known(hosts, two_hosts, tributary, client_of):
    port, _, _ = two_hosts
    proxy = tributary(f"provider.test:{port}", upstream="discovery = dns", route="call = unary")
    client = client_of(proxy)
    reply = client.call(SAY).says(14, trailers_only=True)
    assert "provider.test" in reply.message
    hosts.set(provider_test="127.0.0.2")
    wait_until_true(lambda: client.call(SAY).code == 0, "the name to be found", 8)


@needs_namespace
def test_a_name_that_is_lost_keeps_its_addresses(hosts, two_hosts, tributary, client_of):
    """Name servers fail more often than providers move: what worked goes on."""
    port, first, second = two_hosts
    hosts.set(a_test="127.0.0.2", b_test="127.0.0.3")
    proxy = tributary([f"a.test:{port}", f"b.test:{port}"], route="call = unary")
    client = client_of(proxy)
    hosts.set()
    second.stop()  # trouble: names are looked up again
    proxy.said("b.test: ")
    for _ in range(5):
        client.call(SAY).says(0, ["hi"])
    assert f"127.0.0.2:{port}" in endpoints(proxy)
    assert first.running()


@needs_namespace
def test_ipv6_addresses_of_a_name(hosts, tributary, client_of, echo):
    if not os.path.exists("/proc/net/if_inet6") or "00000000000000000000000000000001" not in open("/proc/net/if_inet6").read():
        pytest.skip("no IPv6 loopback here")
    port = find_free_port("::1")
    echo("--bind", "::1", "--port", port)
    hosts.set(provider_test="::1")
    proxy = tributary(f"provider.test:{port}", route="call = unary")
    client_of(proxy).call(SAY).says(0, ["hi"])
    assert list(endpoints(proxy)) == [f"[::1]:{port}"]


def test_localhost_is_looked_up(echo, tributary, client_of):
    provider = echo()
    proxy = tributary(provider.target.replace("127.0.0.1", "localhost"), route="call = unary")
    client = client_of(proxy)
    for _ in range(20):
        client.call(SAY).says(0, ["hi"])
    assert provider.target in endpoints(proxy)


def test_a_stop_does_not_wait_for_name_servers(tributary, tmp_path):
    """Names that are being looked up hold nobody up."""
    proxy = tributary("a-name-that-is-not.invalid:1", ready=False)
    proxy.said("listener main")
    began = time.monotonic()
    proxy.stop()
    assert time.monotonic() - began < 1


# --- discovery = file ---

def listing(path, *targets):
    """Written whole and moved into place, as careful writers do."""
    fresh = path.with_suffix(".new")
    fresh.write_text("# providers\n\n" + "".join(f"  {target}\n" for target in targets))
    fresh.rename(path)


@pytest.fixture
def provider_of():
    made = []

    def make():
        made.append(Provider(either))
        return made[-1]
    yield make
    for each in made:
        each.close()


def test_endpoints_follow_their_file(tributary, tmp_path, provider_of, client_of):
    first, second = provider_of(), provider_of()
    file = tmp_path / "endpoints.txt"
    listing(file, first.target)
    proxy = tributary(str(file), upstream="discovery = file\nlb_policy = round_robin", route="call = unary")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    listing(file, first.target, second.target)
    wait_until_true(lambda: len(endpoints(proxy)) == 2, "the second endpoint", 5)
    for _ in range(4):
        client.call(SAY).says(0, ["hi"])
    assert second.requests
    listing(file, second.target)
    wait_until_true(lambda: list(endpoints(proxy)) == [second.target], "the first endpoint to go", 5)
    count = len(first.requests)
    for _ in range(4):
        client.call(SAY).says(0, ["hi"])
    assert len(first.requests) == count


@pytest.mark.parametrize("content, line", [("{target}\nnot an endpoint\n", 2), ("# nothing\n", 1), ("", 1),
                                           ("127.0.0.1:0\n", 1), ("127.0.0.1:99999\n", 1)])
def test_a_bad_file_changes_nothing(tributary, tmp_path, provider_of, client_of, content, line):
    provider = provider_of()
    file = tmp_path / "endpoints.txt"
    listing(file, provider.target)
    proxy = tributary(str(file), upstream="discovery = file", route="call = unary")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    file.write_text(content.format(target=provider.target))
    proxy.said(rf"{file}:{line}: ", 5)
    client.call(SAY).says(0, ["hi"])
    time.sleep(1.2)
    assert proxy.errors().count(f"{file}:{line}: ") == 1  # once per change, not once a second


def test_a_file_that_comes_later(tributary, tmp_path, provider_of, client_of):
    provider = provider_of()
    file = tmp_path / "endpoints.txt"
    proxy = tributary(str(file), upstream="discovery = file", route="call = unary")
    client = client_of(proxy)
    reply = client.call(SAY).says(14)
    assert "endpoints.txt" in reply.message
    listing(file, provider.target)
    wait_until_true(lambda: client.call(SAY).code == 0, "the file to be read", 5)
    file.unlink()
    time.sleep(1.2)
    client.call(SAY).says(0, ["hi"])
