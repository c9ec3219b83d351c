"""The fixture `scripted`: the real proxy between a scripted provider U and scripted clients C (h2peer).

    setup = scripted(answer, upstream="wire = bare")      answer(peer, stream) is U's; see h2peer.Provider
    setup.client.call(U)                                  REQ-U; S: REQ-S, A: call = auto
    setup.provider.requests                               what U got

At the end of a test the proxy must be at rest: every call ended, no byte of a body in memory.
"""
import h2peer
import pytest
from conftest import wait_until_true

# Paths whose routes say call = unary, stream, auto.
U, S, A = "/u.S/Method", "/s.S/Method", "/a.S/Method"

INI = """
[proxy]
admin = {{admin}}
{proxy}
[listener main]
address = 127.0.0.1:0
{listener}
[upstream up]
endpoints = {endpoints}
{upstream}
[route u]
match = /u.S/*
upstream = up
call = unary
{route}
[route s]
match = /s.S/*
upstream = up
call = stream
{route}
[route a]
match = /a.S/*
upstream = up
{route}
{more}
"""


class Setup:
    def __init__(self, provider, proxy):
        self.provider, self.proxy, self.clients = provider, proxy, []

    def new_client(self, **options):
        client = h2peer.Client(self.proxy.target, **options)
        self.clients.append(client)
        return client

    @property
    def client(self):
        return self.clients[0] if self.clients else self.new_client()

    def route(self, name):
        """The route's figures, once the calls that its clients have seen end are counted: that may be a moment later."""
        def counted():
            route = self.proxy.stats()["routes"][name]
            return route if route["active"] == 0 else None
        return wait_until_true(counted, f"the calls of route {name} counted")

    def endpoint(self):
        return self.proxy.stats()["upstreams"]["up"]["endpoints"][self.provider.target]

    def close(self):
        for client in self.clients:
            client.close()

        def at_rest():
            stats = self.proxy.stats()
            active = {name: route["active"] for name, route in stats["routes"].items() if route["active"]}
            return stats if not active and stats["buffers"]["bytes"] == 0 else None
        if self.proxy.running():
            stats = wait_until_true(at_rest, "the proxy at rest")
            for name, route in stats["routes"].items():
                assert route["started"] == route["calls"] == sum(route["status"].values()), (name, route)


@pytest.fixture
def scripted(tributary):
    setups = []

    def start(answer=h2peer.either, *, endpoints=None, whole=True, proxy="", listener="", upstream="", route="", more="",
              **options):
        provider = h2peer.Provider(answer, whole, **options)
        text = INI.format(endpoints=endpoints or provider.target, proxy=proxy, listener=listener, upstream=upstream,
                          route=route, more=more)
        setups.append(Setup(provider, tributary(text=text)))
        return setups[-1]
    yield start
    for setup in setups:
        try:
            setup.close()
        finally:
            setup.provider.close()
