"""Java providers and Java clients: directly, as the baseline, and through the proxy.

The cases live in the client programs (java/, js/, py/); each is a test of its own here, once for each
provider and way to it. LIMITS is what the direct baseline showed that a provider itself does not do.
What needs exact counts, one proxy's state or the bytes on the wire is in test_java_wire.py.
"""
import concurrent.futures
import pathlib

import pytest

import matrix
from java_peers import JAVA_PROVIDERS, java_providers, name_of, run_cases  # noqa: F401
from peers import HERE, Proxy, check_case, go_programs, go_provider  # noqa: F401

BASE = "unary error deadline cancel server client bidi".split()
CASES = {
    "grpc-java": BASE + """codes raw_message plain_error metadata cancel_stream stream_error stream_deadline empty
        concurrent implementation""".split(),
    "dubbo-java 3.3": BASE + """codes raw_message plain_error metadata stream_error empty concurrent group_version
        wrapper wrapper_object wrapper_exception wrapper_crash wrapper_gzip""".split(),
    "grpc-js": BASE + "codes metadata cancel_stream stream_error empty concurrent".split(),
    "grpcio": BASE + "codes raw_message metadata cancel_stream stream_error empty concurrent".split(),
}
for each in CASES.values():
    each += ["gzip", "big"]  # last: directly they may cost the connection
CASES["dubbo-java 3.2"] = CASES["dubbo-java 3.3"]
# A dubbo-go provider has no Greeter, and its group and version are other ones for Java's path.
JAVA_ONLY = {"group_version", "wrapper", "wrapper_object", "wrapper_exception", "wrapper_crash", "wrapper_gzip"}
PROVIDERS = ("dubbo-java 3.3", "dubbo-java 3.2", "dubbo-go")

# What a provider itself does not do, asked directly: (clients, provider, case): words of the failure.
# "sometimes": it depends on how fast the client reads.
RAW = "3.3 sends grpc-message raw: its own consumers cannot decode a percent sign, gRPC sees broken UTF-8"
WRAPPER_GZIP = "3.3 does not take compressed requests for services without IDL"
WINDOW = "3.2 closes a connection whose window a reply has used up"
LOSS = "3.3 sometimes loses the connection of a Dubbo consumer at a compressed request, and what follows on it"
OWN_CLOCK = "dubbo-go's handler may see the deadline before the client does, and answers 17"
LIMITS = {
    ("grpc-java", "dubbo-go", "stream_deadline"): OWN_CLOCK,
    ("dubbo-java 3.3", "dubbo-java 3.3", "error"): RAW,
    ("dubbo-java 3.2", "dubbo-java 3.3", "error"): RAW,
    ("dubbo-java 3.3", "dubbo-java 3.3", "raw_message"): RAW,
    ("dubbo-java 3.2", "dubbo-java 3.3", "raw_message"): RAW,
    ("grpc-java", "dubbo-java 3.3", "raw_message"): RAW,
    ("dubbo-java 3.3", "dubbo-java 3.3", "wrapper_gzip"): WRAPPER_GZIP,
    ("dubbo-java 3.2", "dubbo-java 3.3", "wrapper_gzip"): WRAPPER_GZIP,
    ("dubbo-java 3.3", "dubbo-java 3.3", "gzip"): LOSS,
    ("dubbo-java 3.3", "dubbo-java 3.3", "big"): LOSS,
    ("dubbo-java 3.2", "dubbo-java 3.3", "gzip"): LOSS,
    ("dubbo-java 3.2", "dubbo-java 3.3", "big"): LOSS,
    ("grpc-java", "dubbo-java 3.2", "big"): WINDOW,
    ("grpc-js", "dubbo-java 3.2", "big"): WINDOW,
    ("grpc-js", "dubbo-java 3.2", "gzip"): WINDOW,
    ("grpcio", "dubbo-java 3.2", "big"): WINDOW,
    ("grpc-js", "dubbo-java 3.2", "error"): "3.2 percent-encodes more than this client decodes",
    ("dubbo-java 3.3", "dubbo-go", "error"): "dubbo-go leaves + alone, Java's consumers take it for a space",
    ("dubbo-java 3.2", "dubbo-go", "error"): "dubbo-go leaves + alone, Java's consumers take it for a space",
    ("dubbo-java 3.3", "dubbo-go", "raw_message"): "dubbo-go leaves + alone, Java's consumers take it for a space",
    ("dubbo-java 3.2", "dubbo-go", "raw_message"): "dubbo-go leaves + alone, Java's consumers take it for a space",
    ("dubbo-java 3.2", "dubbo-go", "big"): "3.2's consumer breaks on dubbo-go's frames of more than 16 KiB",
}
SOMETIMES = {WINDOW, LOSS, OWN_CLOCK}
# 3.3 sometimes (seen directly: once in some hundred runs) answers no more after a cancelled stream.
SILENT = {("dubbo-java 3.3", "cancel_stream")}


def ask(way, client, provider, target, cases):
    """{case: line}. Directly it is other people's programs that are asked: what they fail at once (LIMITS say what always) is asked
    again, twice at most, by a client of its own. Through the proxy only what SILENT names."""
    lines = run_cases(client, target, cases)
    for _ in range(2):
        again = [case for case in cases if not lines.get(case, {"ok": False})["ok"] and (client, provider, case) not in LIMITS
                 and (way == "direct" or (provider, case) in SILENT)]
        if again:
            lines.update(run_cases(client, target, again))
    return lines


def pairs(clients=CASES, providers=PROVIDERS):
    return [(client, provider, case) for client in clients for provider in providers for case in CASES[client]
            if provider != "dubbo-go" or case not in JAVA_ONLY]


def java_pairs():
    return pairs(providers=tuple(JAVA_PROVIDERS))


# --- fixtures -------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def addresses(java_providers, go_provider):
    return {"dubbo-go": go_provider.address, **{name: each.address for name, each in java_providers.items()}}


@pytest.fixture(scope="module")
def proxy(addresses, tmp_path_factory):
    """A listener for each provider and wire setting, each with an upstream of its own."""
    sections, listeners = {}, []
    for name, address in addresses.items():
        for wire in ("auto", "framed"):
            way = f"{wire}-{matrix.listener_name(name)}"
            listeners.append(way)
            sections[f"upstream {way}"] = {"endpoints": address, "wire": wire}
            sections[f"route {way}"] = {"match": "*", "listener": way, "upstream": way}
    proxy = Proxy(listeners, sections, tmp_path_factory.mktemp("java-proxy")).start()
    yield proxy
    proxy.stop()


class Lines:
    """What the clients' cases showed, by client, provider and way to it ("direct", "auto", "framed").

    The first question about a way starts all its runs that the chosen tests need, two at a time: most
    of a run is waiting.
    """

    def __init__(self, items):
        self.chosen = set()
        for item in items:
            if item.path != pathlib.Path(__file__):
                continue  # other files have a `lines` of their own
            if "measured" in item.fixturenames:
                self.chosen = {(client, provider) for client in CASES for provider in PROVIDERS}
                break
            if "lines" in item.fixturenames:
                self.chosen.add((item.callspec.params["client"], item.callspec.params["provider"]))
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.runs = {}

    def of(self, name, target_of, client, provider):
        """target_of(provider) is its address on the way of that name."""
        if (name, client, provider) not in self.runs:
            for one, other in sorted(self.chosen):
                if name != "framed" or other in JAVA_PROVIDERS:
                    wanted = [case for a, b, case in pairs() if (a, b) == (one, other)]
                    self.runs[name, one, other] = self.pool.submit(ask, name, one, other, target_of(other), wanted)
        return self.runs[name, client, provider].result()


@pytest.fixture(scope="module")
def lines(request):
    lines = Lines(request.session.items)
    yield lines
    lines.pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def direct(lines, addresses):
    return lambda client, provider: lines.of("direct", addresses.get, client, provider)


@pytest.fixture(scope="module")
def auto(lines, proxy):
    return lambda client, provider: lines.of("auto", lambda to: way(proxy, "auto", to), client, provider)


@pytest.fixture(scope="module")
def framed(lines, proxy):
    return lambda client, provider: lines.of("framed", lambda to: way(proxy, "framed", to), client, provider)


def way(proxy, wire, provider):
    return proxy.address[f"{wire}-{matrix.listener_name(provider)}"]


# --- directly -------------------------------------------------------------------------------------

@pytest.mark.parametrize("client,provider,case", pairs(), ids=name_of)
def test_direct(direct, client, provider, case):
    lines, limit = direct(client, provider), LIMITS.get((client, provider, case))
    if limit is None:
        check_case(lines, case)
    elif limit not in SOMETIMES:
        assert not lines[case]["ok"], f"no longer so: {limit}"


# --- the same cases through the proxy -------------------------------------------------------------

@pytest.mark.parametrize("client,provider,case", pairs(), ids=name_of)
def test_wire_auto(auto, client, provider, case):
    check_case(auto(client, provider), case)


@pytest.mark.parametrize("client,provider,case", java_pairs(), ids=name_of)
def test_wire_framed(framed, client, provider, case):
    check_case(framed(client, provider), case)


FACTS = ("implementation", "plain", "grey/2.0", "/1.1", "leading", "trailing", "text", "bin", "exception", "headers")
# accept-encoding is between neighbours; Java would hand it on as an attachment.
NOT_PASSED_ON = {"accept-encoding"}


def facts(line):
    seen = {name: line["facts"].get(name) for name in FACTS}
    seen["headers"] = set((seen["headers"] or "").split()) - NOT_PASSED_ON
    return seen


@pytest.mark.parametrize("client,provider", [(c, p) for c in CASES for p in JAVA_PROVIDERS], ids=name_of)
def test_clients_and_providers_see_the_same_as_directly(direct, auto, client, provider):
    wanted, seen = direct(client, provider), auto(client, provider)
    for case in CASES[client]:
        assert facts(seen[case]) == facts(wanted[case]), case


# --- the matrix ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def measured(addresses, proxy, direct, auto):
    """The matrix's cells, out of the runs above and two more for each Go client and provider."""
    lines = {}
    for client in matrix.CLIENTS:
        for provider in PROVIDERS:
            if client in CASES:
                lines[client, provider] = direct(client, provider), auto(client, provider)
            else:
                targets = addresses[provider], way(proxy, "auto", provider)
                lines[client, provider] = tuple(matrix.run_client(client, target) for target in targets)
    return matrix.cells(lines)


@pytest.mark.parametrize("client", matrix.CLIENTS, ids=name_of)
def test_matrix_has_no_cell_that_works_only_without_the_proxy(measured, client):
    assert not {key[1:]: note for key, (kind, note) in measured.items() if key[0] == client and kind == "fault"}


def test_the_readme_s_matrix_is_the_one_measured_here(measured):
    readme = (HERE.parent.parent / "README.md").read_text()
    told = readme.partition(matrix.BEGIN)[2].partition(matrix.END)[0].strip()
    assert told == matrix.markdown(measured).strip(), "run tests/interop/matrix.py --readme README.md"
