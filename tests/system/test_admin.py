"""The stats endpoint, --explain and --probe, as people and machines use them."""
import re
import signal
import socket
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

SAY = "/tributary.demo.Echo/Say"
HISTOGRAM = {"count", "mean", "p50", "p90", "p99", "p999", "max"}
PATHS = ["fast", "cut_through", "relay", "framed", "fallback"]
PHASES = ["overhead", "queue", "request", "response", "upstream", "total"]


def families(text):
    """Prometheus' own parser: {family: {(sample name, labels): value}}; a family may stand there once."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, family.name
        assert family.documentation and family.type != "unknown", family.name
        samples = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples}
        assert len(samples) == len(family.samples), f"{family.name}: a sample twice"
        found[family.name] = samples
    return found


def value(found, family, name=None, **labels):
    return found[family][(name or family, tuple(sorted(labels.items())))]


# --- /stats ---------------------------------------------------------------------------------------

def test_stats_have_the_documented_shape_before_any_call(tributary, echo):
    provider = echo()
    proxy = tributary(provider)
    stats = proxy.stats()
    assert stats["state"] == "ready"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", stats["version"])
    assert isinstance(stats["uptime_s"], int)
    assert stats["config"] == {"generation": 1, "error": None}
    assert set(stats["buffers"]) == {"bytes", "peak_bytes", "budget_bytes"}
    assert stats["listeners"] == {"main": {"connections": 0, "accepted": 0, "streams": 0, "reads": 0, "writes": 0}}
    assert list(stats["routes"]) == ["echo"]
    route = stats["routes"]["echo"]
    assert (route["started"], route["calls"], route["active"], route["status"]) == (0, 0, 0, {})
    assert route["path"] == dict.fromkeys(PATHS, 0)
    assert route["resets"] == {"downstream": 0, "upstream": 0}
    assert route["errors"] == {}
    for phase in PHASES:
        assert route[f"{phase}_us"] == dict.fromkeys(HISTOGRAM, 0)
    for path in PATHS:
        assert set(route["by_path"][path]) == {"overhead_us", "total_us"}
    endpoint = stats["upstreams"]["echo"]["endpoints"][provider.target]
    assert endpoint["wire"] == "unknown"
    assert endpoint["failures"] == 0
    assert set(endpoint["upstream_us"]) == HISTOGRAM


def test_stats_count_calls_by_status_path_and_time(tributary, echo, call):
    provider = echo()
    proxy = tributary(provider)
    call(proxy, "--count", 9, "--size", 100)
    call(proxy, "--method", "/tributary.demo.Echo/Fail", "--text", "code=5 text=gone", "--expect-status", 5)
    stats = proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 10, "10 calls")
    route = stats["routes"]["echo"]
    assert route["started"] == 10 and route["active"] == 0
    assert route["status"] == {"OK": 9, "NOT_FOUND": 1}
    assert route["path"]["fast"] == 10
    assert route["errors"] == {}
    assert route["bytes_in"] == 9 * 100 + len("code=5 text=gone")
    assert route["bytes_out"] == 9 * 100
    for name in ("overhead_us", "queue_us", "request_us", "response_us", "upstream_us", "total_us"):
        times = route[name]
        assert times["count"] == 10
        assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["p999"] <= times["max"]
        assert times["mean"] <= times["max"]
    assert route["total_us"]["mean"] >= route["overhead_us"]["mean"] > 0
    assert route["by_path"]["fast"]["total_us"] == route["total_us"]
    assert route["by_path"]["framed"]["total_us"]["count"] == 0
    endpoint = stats["upstreams"]["echo"]["endpoints"][provider.target]
    assert endpoint["state"] == "ready" and endpoint["wire"] == "bare"
    assert endpoint["connections"] == endpoint["opened"] == 1
    assert endpoint["reads"] > 0 and endpoint["writes"] > 0
    assert endpoint["upstream_us"]["count"] == 10
    assert stats["listeners"]["main"]["accepted"] == 2


def test_a_running_call_is_active_until_it_ends(tributary, echo, call):
    proxy = tributary(echo("--delay-us", 400000))
    caller = threading.Thread(target=call, args=(proxy,))
    caller.start()
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["active"] == 1, "an active call")
    caller.join()
    stats = proxy.wait_for(lambda stats: stats["routes"]["echo"]["active"] == 0, "no active call")
    assert stats["routes"]["echo"]["calls"] == 1


def test_calls_without_a_route_show_under_none_with_their_reason(tributary, echo, call):
    proxy = tributary(echo())
    call(proxy, "--method", "/no.such.Service/Call", "--expect-status", 12)
    stats = proxy.wait_for(lambda stats: stats["routes"].get("(none)", {}).get("calls") == 1, "(none)")
    assert stats["routes"]["(none)"]["status"] == {"UNIMPLEMENTED": 1}
    assert stats["routes"]["(none)"]["errors"] == {"NO_ROUTE": 1}
    assert list(stats["routes"]) == ["echo", "(none)"]


def test_a_dead_endpoint_shows_its_failures_and_the_call_its_reason(tributary, call, free_port):
    address = f"127.0.0.1:{free_port()}"
    proxy = tributary(address)
    call(proxy, "--expect-status", 14)
    stats = proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 1, "the call")
    assert stats["routes"]["echo"]["status"] == {"UNAVAILABLE": 1}
    assert sum(stats["routes"]["echo"]["errors"].values()) == 1
    assert proxy.endpoint(address)["failures"] >= 1


def test_reset_zeroes_histograms_of_stats_and_nothing_of_metrics(tributary, echo, call):
    proxy = tributary(echo(), proxy="workers = 2")
    call(proxy, "--count", 20, "--connections", 4)
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 20, "20 calls")
    proxy.reset()
    route = proxy.route()
    assert route["calls"] == 20
    assert route["total_us"] == dict.fromkeys(HISTOGRAM, 0)
    assert route["by_path"]["fast"]["overhead_us"]["count"] == 0
    found = families(proxy.get("/metrics").text)
    name = "tributary_call_phase_seconds"
    assert value(found, name, f"{name}_count", route="echo", phase="total") == 20
    call(proxy)
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["total_us"]["count"] == 1, "one call since")


def test_counters_belong_to_names_and_survive_a_reload(tributary, echo, call):
    provider = echo()
    proxy = tributary(provider)
    call(proxy, "--count", 3)
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 3, "3 calls")
    old = proxy.file.read_text()
    assert proxy.reload(old.replace("[route echo]", "[route other]"))["generation"] == 2
    assert list(proxy.stats()["routes"]) == ["other"]
    assert proxy.reload(old)["generation"] == 3
    assert proxy.route()["calls"] == 3


def test_endpoints_are_those_of_the_newest_configuration(tributary, echo, call):
    first, second = echo(), echo()
    proxy = tributary(first)
    call(proxy)
    proxy.reload(proxy.file.read_text().replace(first.target, second.target))
    call(proxy)
    shown = proxy.wait_for(lambda stats: list(stats["upstreams"]["echo"]["endpoints"]) == [second.target], "the new endpoint")
    assert shown["upstreams"]["echo"]["endpoints"][second.target]["opened"] == 1
    assert first.target not in proxy.get("/metrics").text


# --- /metrics -------------------------------------------------------------------------------------

def test_metrics_are_valid_and_agree_with_stats(tributary, echo, call):
    provider = echo()
    proxy = tributary(provider, probe=True)
    call(proxy, "--count", 50)
    call(proxy, "--type", "bidi", "--method", "/tributary.demo.Echo/Chat")
    stats = proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 51, "51 calls")
    reply = proxy.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(reply.text)
    assert value(found, "tributary_calls", "tributary_calls_total", route="echo", status="OK") == 51
    assert value(found, "tributary_calls_by_path", "tributary_calls_by_path_total", route="echo", path="fast") == 50
    assert value(found, "tributary_calls_by_path", "tributary_calls_by_path_total", route="echo", path="framed") == 1
    assert value(found, "tributary_ready") == 1
    assert value(found, "tributary_endpoint_usable", upstream="echo", endpoint=provider.target) == 1
    assert value(found, "tributary_build_info", version=stats["version"]) == 1
    sent = value(found, "tributary_request_bytes", "tributary_request_bytes_total", route="echo")
    assert sent == stats["routes"]["echo"]["bytes_in"]
    assert value(found, "process_resident_memory_bytes") > 1 << 20
    assert abs(value(found, "process_start_time_seconds") - time.time()) < 60
    assert value(found, "process_open_fds") > 3


def test_histograms_in_metrics_are_cumulative_in_seconds(tributary, echo, call):
    proxy = tributary(echo("--delay-us", 20000))
    call(proxy, "--count", 20, "--concurrency", 10)
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["calls"] == 20, "20 calls")
    name = "tributary_call_phase_seconds"
    samples = families(proxy.get("/metrics").text)[name]
    buckets = [(float(dict(labels)["le"]), count) for (sample, labels), count in samples.items()
               if sample == f"{name}_bucket" and dict(labels)["phase"] == "upstream"]
    assert buckets == sorted(buckets)
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert buckets[-1] == (float("inf"), 20)
    assert sum(1 for bound, _ in buckets if bound < 0.001) >= 5
    assert all(count == 0 for bound, count in buckets if bound < 0.016)
    total = value(families(proxy.get("/metrics").text), name, f"{name}_sum", route="echo", phase="upstream")
    assert 20 * 0.018 < total < 20 * 2


def test_metrics_have_no_labels_that_grow_with_traffic(tributary, echo, call):
    proxy = tributary(echo())
    for method in ("Say", "Say2", "Say3"):
        call(proxy, "--method", f"/tributary.demo.Echo/{method}", "--expect-status", 0 if method == "Say" else 12)
    text = proxy.get("/metrics").text
    names = {name for samples in families(text).values() for _, labels in samples for name, _ in labels}
    assert names <= {"route", "status", "path", "phase", "upstream", "endpoint", "listener", "reason", "version", "le"}
    assert "Say" not in text


# --- /live, /ready, /config -----------------------------------------------------------------------

def test_ready_is_503_while_draining_and_live_stays_200(tributary, echo, call):
    proxy = tributary(echo("--delay-us", 1500000), probe=True, proxy="drain_delay = 300ms")
    caller = threading.Thread(target=call, args=(proxy,))
    caller.start()
    proxy.wait_for(lambda stats: stats["routes"]["echo"]["active"] == 1, "an active call")
    proxy.send(signal.SIGTERM)
    proxy.wait_for(lambda stats: stats["state"] == "draining", "draining")
    ready = proxy.get("/ready")
    assert (ready.status, ready.text) == (503, "draining\n")
    assert proxy.get("/live").status == 200
    assert "tributary_ready 0" in proxy.get("/metrics").text
    caller.join()
    assert proxy.wait() == 0


def test_ready_with_upstreams_names_the_route_that_cannot_work(tributary, free_port, call, wait_until):
    address = f"127.0.0.1:{free_port()}"
    proxy = tributary(address, upstream="connect_timeout = 200ms")

    def refused():
        call(proxy, "--expect-status", 14)  # keeps it in backoff
        reply = proxy.get("/ready?upstreams")
        return reply if reply.status == 503 else None
    reply = wait_until(refused, "503")
    assert reply.text == "route echo: upstream echo has no usable endpoint (of 1)\n"
    assert proxy.get("/ready").status == 200


def test_ready_with_upstreams_follows_a_provider_that_comes_without_any_call(tributary, echo, free_port, wait_until):
    port = free_port()
    proxy = tributary(f"127.0.0.1:{port}")
    wait_until(lambda: proxy.get("/ready?upstreams").status == 503, "503")
    echo("--port", port)
    wait_until(lambda: proxy.get("/ready?upstreams").status == 200, "200")


def test_ready_with_upstreams_counts_an_endpoint_that_works(tributary, echo, call):
    proxy = tributary(echo())
    assert proxy.get("/ready?upstreams").status == 200
    call(proxy)
    assert proxy.get("/ready?upstreams=1").text == "ready\n"


def test_config_is_effective_hides_secrets_and_tells_the_last_error(tributary, echo, run_tributary, tmp_path):
    proxy = tributary(echo(), route="set_header = authorization: Bearer s3cret")
    text = proxy.get("/config").text
    assert "generation 1" in text.splitlines()[0]
    assert "drain_timeout = 25s" in text and "s3cret" not in text
    good = proxy.file.read_text()
    config = proxy.reload(good + "tiemout = 1s\n")
    assert config["generation"] == 1
    assert "tiemout" in config["error"]
    text = proxy.get("/config").text
    assert "; the last reload failed and changed nothing:" in text
    assert "did you mean 'timeout'?" in text
    (tmp_path / "again.ini").write_text(text.replace("(hidden)", "x-a: b"))
    assert run_tributary("-c", tmp_path / "again.ini", "--check").returncode == 0
    assert proxy.reload(good) == {"generation": 2, "error": None}
    assert "failed" not in proxy.get("/config").text


# --- HTTP -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("method,path,status,allow", [
    ("GET", "/reset", 405, "POST"),
    ("HEAD", "/reset", 405, "POST"),
    ("POST", "/stats", 405, "GET, HEAD"),
    ("PUT", "/live", 405, "GET, HEAD"),
    ("DELETE", "/", 405, "GET, HEAD"),
    ("GET", "/stats/", 404, None),
    ("GET", "/../stats", 404, None),
    ("GET", "/nothing", 404, None),
    ("GET", "/explain", 400, None),
])
def test_what_is_not_offered_is_refused_in_a_line(tributary, echo, method, path, status, allow):
    proxy = tributary(echo())
    reply = proxy.get(path, method=method)
    assert reply.status == status
    assert reply.headers.get("allow") == allow
    assert reply.headers["content-type"].startswith("text/plain")
    assert (len(reply.body) == 0) == (method == "HEAD")


def test_head_tells_the_length_without_the_body(tributary, echo):
    proxy = tributary(echo())
    reply = proxy.get("/config", method="HEAD")
    assert reply.status == 200 and reply.body == b""
    assert int(reply.headers["content-length"]) == len(proxy.get("/config").body)


def test_the_probe_address_offers_health_and_metrics_only(tributary, echo, http_get):
    proxy = tributary(echo(), probe=True)
    for path in ("/live", "/ready", "/metrics", "/ready?upstreams"):
        assert http_get(proxy.probe, path).status == 200, path
    for path in ("/", "/stats", "/config", "/explain?path=/a/B", "/admin_page.js"):
        assert http_get(proxy.probe, path).status == 404, path
    assert http_get(proxy.probe, "/reset", method="POST").status == 404


def test_a_page_of_another_site_cannot_reset(tributary, echo):
    proxy = tributary(echo())
    assert proxy.get("/reset", method="POST", headers={"origin": "https://example.org"}).status == 403
    assert proxy.get("/reset", method="POST", headers={"origin": "http://example.org"}).status == 403
    assert proxy.get("/reset", method="POST", headers={"origin": f"http://{proxy.admin}"}).status == 200
    assert proxy.get("/reset", method="POST", body=b"whatever").status == 200


def test_a_connection_serves_many_requests_also_sent_ahead(tributary, echo, connect_to):
    proxy = tributary(echo())
    with connect_to(proxy.admin) as sock:
        sock.sendall(b"GET /live HTTP/1.1\r\nhost: a\r\n\r\n" * 50 + b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        received = read_all(sock)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 51
    assert received.count(b"\r\n\r\nlive\n") == 50 and received.endswith(b"\r\n\r\nready\n")


def read_all(sock, limit=1 << 24):
    """Until the peer ends; a reset counts as the end."""
    received = b""
    try:
        while (part := sock.recv(65536)) and len(received) < limit:
            received += part
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("garbage", [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + b"\0\0\0\4\1\0\0\0\0",
    bytes.fromhex("16030100c8010000c40303") + bytes(190),
    b"\0" * 4096,
    b"GET /stats HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"GET /stats HTTP/1.1\r\nhost: a\r\n" + b"x-a: " + b"b" * 70000 + b"\r\n\r\n",
    b"GET /stats HTTP/3.0\r\n\r\n",
    b"GET /stats\r\n\r\n",
    b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nhost: a\r\n\r\n",
], ids=["h2", "tls", "zeros", "two-lengths", "long-head", "http3", "http09", "connect"])
def test_bytes_that_are_no_request_get_a_short_error_or_the_end(tributary, echo, connect_to, garbage):
    proxy = tributary(echo())
    with connect_to(proxy.admin) as sock:
        sock.sendall(garbage)
        received = read_all(sock)
    assert received == b"" or re.match(rb"HTTP/1\.1 (4|5)\d\d ", received), received[:100]
    assert len(received) < 1000
    assert proxy.get("/live").status == 200


def test_a_body_nobody_wants_is_refused_when_it_is_long(tributary, echo, connect_to):
    proxy = tributary(echo())
    with connect_to(proxy.admin) as sock:
        sock.sendall(b"POST /reset HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 100000)
        received = read_all(sock)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert proxy.get("/live").status == 200


def test_a_begun_head_that_stops_is_cut_off(tributary, echo, connect_to):
    proxy = tributary(echo())
    with connect_to(proxy.admin, 15) as sock:
        sock.sendall(b"GET /live HT")
        began = time.monotonic()
        received = read_all(sock)
    assert time.monotonic() - began < 10
    assert received == b"" or received.startswith(b"HTTP/1.1 408 ")


def test_idle_connections_make_room_for_new_ones(tributary, echo, connect_to):
    proxy = tributary(echo())
    idle = [connect_to(proxy.admin) for _ in range(200)]
    began = time.monotonic()
    assert proxy.get("/live").status == 200
    assert time.monotonic() - began < 3
    assert proxy.stats()["process"]["open_fds"] < 150
    for sock in idle:
        sock.close()


def test_a_client_that_does_not_read_holds_up_nobody(tributary, echo, connect_to, call):
    routes = "".join(f"[route r{i}]\nmatch = /a.S{i}/*\nupstream = echo\n" for i in range(100))
    proxy = tributary(echo(), more=routes)
    slow = []
    for _ in range(10):
        sock = connect_to(proxy.admin)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(b"GET /stats HTTP/1.1\r\nhost: a\r\n\r\n" * 20)
        slow.append(sock)
    began = time.monotonic()
    assert proxy.get("/live").status == 200
    call(proxy, "--count", 10)
    assert time.monotonic() - began < 5
    proxy.stop()  # they don't keep it from going either
    for sock in slow:
        sock.close()


def test_stop_ends_open_connections_of_the_endpoint(tributary, echo, connect_to):
    proxy = tributary(echo(), probe=True)
    with connect_to(proxy.admin) as idle, connect_to(proxy.probe) as begun, connect_to(proxy.admin) as served:
        begun.sendall(b"GET /li")
        served.sendall(b"GET /live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert served.recv(65536).startswith(b"HTTP/1.1 200 ")
        proxy.stop(signal.SIGINT, 10)
        assert read_all(idle) == read_all(served) == b""


@pytest.mark.parametrize("kind", ["v6", "unix"])
def test_the_endpoint_listens_on_every_kind_of_address(tributary, echo, free_port, http_get, run_tributary, tmp_path, kind):
    admin = f"[::1]:{free_port('::1')}" if kind == "v6" else f"unix:{tmp_path}/admin.sock"
    proxy = tributary(echo(), admin=admin)
    assert http_get(admin, "/live").text == "live\n"
    assert run_tributary("-c", proxy.file, "--probe", "ready").returncode == 0
    proxy.stop()
    assert not (tmp_path / "admin.sock").exists()


def test_a_stale_unix_socket_is_replaced_and_a_live_one_is_not(tributary, echo, run_tributary, tmp_path):
    path = tmp_path / "admin.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    provider = echo()
    proxy = tributary(provider, admin=f"unix:{path}")
    other = tmp_path / "other.ini"
    other.write_text(proxy.file.read_text())
    result = run_tributary("-c", other)
    assert result.returncode == 2
    assert "admin: cannot listen on unix:" in result.stderr
    assert proxy.get("/live").status == 200


def test_a_taken_port_is_exit_code_2_with_one_line(tributary, echo, run_tributary, tmp_path):
    proxy = tributary(echo())
    other = tmp_path / "other.ini"
    other.write_text(proxy.file.read_text())
    result = run_tributary("-c", other)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert f"admin: cannot listen on {proxy.admin}: address already in use" in result.stderr


# --- the page -------------------------------------------------------------------------------------

def test_the_page_loads_nothing_from_elsewhere(tributary, echo):
    proxy = tributary(echo())
    page = proxy.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    sources = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)\s*=\s*[\"']([^\"']+)", page.text)
    assert sorted(sources) == ["admin_page.css", "admin_page.js"]
    for source in sources:
        reply = proxy.get(f"/{source}")
        assert reply.status == 200 and len(reply.body) > 100, source
        assert reply.headers["content-type"].split(";")[0] in ("text/javascript", "text/css")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", reply.text)
    assert "<script>" not in page.text and " style=" not in page.text


# --- verbs ----------------------------------------------------------------------------------------

def test_explain_tells_route_line_form_and_what_was_learnt(tributary, echo, call, run_tributary):
    provider = echo()
    proxy = tributary(provider)
    before = run_tributary("-c", proxy.file, "--explain", SAY)
    assert before.returncode == 0, before.stderr
    line = 1 + proxy.file.read_text().splitlines().index("[route echo]")
    assert f"echo ({proxy.file}:{line})" in before.stdout
    assert "match /tributary.demo.Echo/* takes its service" in before.stdout
    assert provider.target in before.stdout
    assert "call = auto, wire = auto" in before.stdout
    assert "nothing is known yet" in before.stdout
    call(proxy)
    after = run_tributary("-c", proxy.file, "--explain", SAY + "?query=ignored").stdout
    assert "takes the bare form" in after
    assert "this method was taken bare" in after


def test_explain_shows_an_endpoint_that_refuses_the_bare_form(tributary, echo, call, run_tributary):
    proxy = tributary(echo("--java33", "--wire", "framed"))
    call(proxy, "--count", 2)
    assert "takes nothing bare: framed" in run_tributary("-c", proxy.file, "--explain", SAY).stdout


def test_explain_of_a_path_that_no_route_takes_exits_1(tributary, echo, run_tributary):
    proxy = tributary(echo())
    result = run_tributary("-c", proxy.file, "--explain", "/other.Service/Call")
    assert result.returncode == 1
    assert "no route takes it" in result.stdout and "takes /tributary.demo.Echo/*" in result.stdout


def test_explain_lists_conditional_routes_in_the_order_they_are_asked(run_tributary, tmp_path):
    file = tmp_path / "t.ini"
    file.write_text("""[listener main]
address = 127.0.0.1:17000
[upstream a]
endpoints = 127.0.0.1:1
wire = framed
[upstream b]
endpoints = 127.0.0.1:2
[route all]
match = *
upstream = a
[route service]
match = /pkg.Greeter/*
upstream = b
call = unary
fast_path = 10%
[route canary]
match = /pkg.Greeter/*
match_header = x-canary: yes
upstream = b
fast_path = off
[route package]
match = /pkg.*
upstream = b
""")
    result = run_tributary("-c", file, "--explain", "/pkg.Greeter/Hello")
    assert result.returncode == 0
    assert re.findall(r"(?:route|else) +(\w+) \(", result.stdout) == ["canary", "service"]
    assert "with header x-canary: yes" in result.stdout
    assert "10% of calls fast: held up to 64K" in result.stdout
    assert "[proxy] has no admin" in result.stdout
    other = run_tributary("-c", file, "--explain", "/else/X").stdout
    assert "match * takes every path" in other and "framed" in other


def test_explain_says_so_when_the_proxy_does_not_answer(run_tributary, tmp_path, free_port):
    file = tmp_path / "t.ini"
    closed = free_port()
    file.write_text(f"[proxy]\nadmin = 127.0.0.1:{closed}\n[listener main]\naddress = 127.0.0.1:17000\n[upstream a]\n"
                    "endpoints = 127.0.0.1:1\n[route r]\nmatch = *\nupstream = a\n")
    result = run_tributary("-c", file, "--explain", "/a.B/C")
    assert result.returncode == 0
    assert f"no answer at 127.0.0.1:{closed}" in result.stdout
    with socket.create_server(("127.0.0.1", closed)):  # accepts, and never answers
        began = time.monotonic()
        result = run_tributary("-c", file, "--explain", "/a.B/C")
    assert 0.9 < time.monotonic() - began < 3
    assert result.returncode == 0 and "no answer" in result.stdout


def test_probe_answers_for_a_running_proxy_and_not_for_a_dead_one(tributary, echo, run_tributary, call):
    proxy = tributary(echo(), probe=True)
    assert run_tributary("-c", proxy.file, "--probe", "live").returncode == 0
    assert run_tributary("-c", proxy.file, "--probe", "ready").returncode == 0
    wrong = run_tributary("-c", proxy.file, "--probe", "alive")
    assert wrong.returncode == 1 and "live or ready" in wrong.stdout
    proxy.stop()
    dead = run_tributary("-c", proxy.file, "--probe", "ready")
    assert dead.returncode == 1
    assert dead.stdout.count("\n") == 1 and "does not answer" in dead.stdout


def test_probe_reaches_a_wildcard_address_by_loopback(tributary, echo, run_tributary, free_port):
    port = free_port()
    proxy = tributary(echo(), proxy=f"probe = 0.0.0.0:{port}")
    assert run_tributary("-c", proxy.file, "--probe", "ready").returncode == 0


def test_stats_and_metrics_are_valid_whatever_an_address_holds(tributary, tmp_path):
    address = f'unix:{tmp_path}/a"b\\c<d'
    proxy = tributary(address)
    assert list(proxy.stats()["upstreams"]["echo"]["endpoints"]) == [address]
    found = families(proxy.get("/metrics").text)
    assert value(found, "tributary_endpoint_usable", upstream="echo", endpoint=address) in (0, 1)
