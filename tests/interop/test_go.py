"""grpc-go calls dubbo-go: directly, as the baseline, and through the proxy on every kind of route.

The cases live in go/cmd/grpc-client; each is a test of its own here, once per way to the provider.
What differs between the ways is decided in the client (-direct): code 17, which the proxy turns into
UNKNOWN for gRPC clients.
"""
import json
import socket
import subprocess
import time

import pytest

from peers import (Process, Provider, Proxy, case_lines, check_case, free_ports, go_programs,  # noqa: F401
                   go_provider, need)

STATUS_NAMES = ("canceled unknown invalidargument deadlineexceeded notfound alreadyexists permissiondenied "
                "resourceexhausted failedprecondition aborted outofrange unimplemented internal unavailable "
                "dataloss unauthenticated").split()

CASES = """
    one_message_at_once_to_stream_methods echo request_of_zero_bytes reply_of_zero_bytes message_of_exactly_4_mib_both_ways
    message_just_over_1_mib message_of_exactly_1_mib reply_of_1_mib_to_a_small_request
    reply_sizes_around_the_content_length_limit request_metadata_keeps_values_and_order
    response_metadata_keeps_values_and_order metadata_of_8_kib no_foreign_response_metadata
    request_headers_do_not_leak gzip_request gzip_request_of_1_mib
    group_and_version_choose_the_implementation unknown_method_is_unimplemented
    unknown_service_is_unimplemented health_check sequential_500_calls
    concurrent_1000_calls_on_one_connection
    status_without_message status_with_message_of_1_kib overlong_message_keeps_its_code status_keeps_metadata details_arrive_in_order
    details_of_unknown_type_arrive plain_error_is_a_business_error code_17_keeps_details_and_metadata
    deadline_expires_on_time_and_stops_the_provider deadline_of_a_stream_expires_and_stops_the_provider
    provider_sees_the_remaining_deadline no_deadline_stays_none cancelled_unary_call_stops_the_provider
    cancelled_stream_stops_the_provider stream_reaches_the_provider_before_its_first_message
    server_stream_delivers_in_order server_stream_of_no_messages client_stream_is_counted
    client_stream_of_no_messages bidi_stream_ping_pong_100 bidi_stream_of_no_messages
    half_close_then_more_replies streamed_messages_are_not_held_back
    response_headers_arrive_before_the_first_message stream_metadata_both_ways server_stream_fails_midway
    server_stream_fails_before_its_first_message client_stream_fails_before_half_close
    bidi_stream_fails_midway stream_details_and_trailers_on_failure stream_plain_error_is_a_business_error
    stream_of_large_messages slow_reader_does_not_stop_other_calls stream_group_and_version
""".split() + [f"status_{code:02}_{name}_with_special_message" for code, name in enumerate(STATUS_NAMES, 1)]

PARITY = """
    echo zero_byte_request zero_byte_reply reply_of_4096 reply_of_1_mib request_of_900_kib
    request_of_2_mib metadata plain_error code_17_with_details code_5_stock code_5_with_details
    code_6_with_metadata empty_message deadline
""".split() + [f"code_{code:02}" for code in range(1, 17)]

SERVICE = "/tributary.interop.Echo"


# --- the baseline ---------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def direct_lines(go_programs, go_provider):
    return case_lines([go_programs["grpc-client"], "-addr", go_provider.address, "-direct"])


def test_every_case_of_the_client_is_a_test_here(go_programs):
    listed = subprocess.run([go_programs["grpc-client"], "-list"], text=True, check=True,
                            stdout=subprocess.PIPE).stdout.split()
    assert sorted(listed) == sorted(CASES)


@pytest.mark.parametrize("case", CASES)
def test_direct(direct_lines, case):
    check_case(direct_lines, case)


# --- through the proxy ----------------------------------------------------------------------------

def upstream(provider, **more):
    return {"endpoints": provider.address, **more}


def route(listener, match="*", **more):
    return {"match": match, "listener": listener, "upstream": listener, **more}


def all_ways(provider):
    """One listener a way; each has an upstream of its own, so that nothing is learnt across ways."""
    return {
        "upstream auto": upstream(provider),
        "route auto": route("auto"),
        # Explicit types: what is unary must leave bare, what is a stream must be framed.
        "upstream explicit": upstream(provider, wire="bare"),
        "route explicit-say": route("explicit", f"{SERVICE}/Say", call="unary"),
        "route explicit-count": route("explicit", f"{SERVICE}/Count", call="unary"),
        "route explicit-streams": route("explicit", f"{SERVICE}/*", call="stream"),
        "route explicit-rest": route("explicit"),
        "upstream stream": upstream(provider),
        "route stream": route("stream", call="stream"),
        # Bare calls over kept HTTP/1.1 connections; streams still on HTTP/2.
        "upstream http1": upstream(provider, transport="http1"),
        "route http1": route("http1"),
        # dubbo-go compresses every reply when it is offered.
        "upstream zipped": upstream(provider, forward_accept_encoding="on"),
        "route zipped": route("zipped"),
        "upstream fast": upstream(provider, wire="bare"),
        "route fast": route("fast", call="unary"),
        "upstream relay": upstream(provider, wire="bare"),
        "route relay": route("relay", call="unary", fast_path="off"),
        "upstream framed": upstream(provider, wire="framed"),
        "route framed": route("framed"),
    }


WAYS = ("auto", "explicit", "stream", "http1", "zipped", "fast", "relay", "framed")


@pytest.fixture(scope="module")
def proxy(go_provider, tmp_path_factory):
    proxy = Proxy(WAYS, all_ways(go_provider), tmp_path_factory.mktemp("proxy")).start()
    yield proxy
    proxy.stop()


class Lines:
    """Runs all cases over one way when the first test asks, and remembers."""

    def __init__(self, program, proxy):
        self.program, self.proxy, self.ways = program, proxy, {}

    def of(self, way):
        if way not in self.ways:
            self.ways[way] = case_lines([self.program, "-addr", self.proxy.address[way]])
        return self.ways[way]


@pytest.fixture(scope="module")
def lines(go_programs, proxy):
    return Lines(go_programs["grpc-client"], proxy)


@pytest.mark.parametrize("case", CASES)
def test_call_auto(lines, case):
    check_case(lines.of("auto"), case)


@pytest.mark.parametrize("case", CASES)
def test_call_explicit(lines, case):
    check_case(lines.of("explicit"), case)


@pytest.mark.parametrize("case", CASES)
def test_call_stream(lines, case):
    check_case(lines.of("stream"), case)


@pytest.mark.parametrize("case", CASES)
def test_transport_http1(lines, case):
    check_case(lines.of("http1"), case)


# There the provider gets accept-encoding on purpose, which that one case forbids elsewhere.
@pytest.mark.parametrize("case", [case for case in CASES if case != "request_headers_do_not_leak"])
def test_replies_compressed(lines, case):
    check_case(lines.of("zipped"), case)


@pytest.fixture(scope="module")
def parity_lines(go_programs, proxy):
    targets = [f"-target={way}={proxy.address[way]}" for way in ("fast", "relay", "framed", "http1", "zipped")]
    return case_lines([go_programs["grpc-client"], "-parity", *targets])


@pytest.mark.parametrize("call", PARITY)
def test_parity_of_fast_relay_framed_http1_and_compressed(parity_lines, call):
    check_case(parity_lines, f"parity/{call}")


def test_parity_really_went_different_ways(parity_lines, proxy):
    routes = proxy.stats()["routes"]
    used = {way: {path for path, calls in routes[way]["path"].items() if calls} for way in ("fast", "relay", "framed")}
    assert used["fast"] <= {"fast", "cut_through"} and "fast" in used["fast"], used
    assert used["relay"] == {"relay"}, used
    assert used["framed"] == {"framed"}, used


def test_parity_covers_every_call_of_the_client(parity_lines):
    assert sorted(parity_lines) == sorted(f"parity/{call}" for call in PARITY)


# --- dubbo-go's own clients -----------------------------------------------------------------------

DUBBO_CASES = """
    echo message_of_zero_bytes message_of_3_mib reply_sizes_around_the_content_length_limit
    request_metadata_arrives response_metadata_arrives details_arrive_in_order deadline_expires
    group_and_version_choose_the_implementation unknown_group_is_unimplemented concurrent_100_calls
""".split() + [f"status_{code:02}_with_special_message" for code in range(1, 17)]
DUBBO_STREAMS = ["server_stream", "server_stream_fails_midway", "client_stream", "bidi_stream"]
DUBBO_HEALTH = ["health_check", "health_watch_stays_open_beside_calls"]
DUBBO_MODES = {
    "framework": DUBBO_CASES + DUBBO_STREAMS + ["plain_error_is_code_17"],
    "grpc": DUBBO_CASES + DUBBO_STREAMS + DUBBO_HEALTH + [
        "plain_error_is_code_17", "error_metadata_arrives", "cancelled_call_stops_the_provider"],
    "triple": DUBBO_CASES + [
        "deadline_is_answered_by_one_voice", "plain_error_is_unknown", "error_metadata_arrives", "cancelled_call_stops_the_provider"],
    "triple-json": DUBBO_CASES + [
        "deadline_is_answered_by_one_voice", "plain_error_is_unknown", "error_metadata_arrives", "cancelled_call_stops_the_provider"],
    "triple-http1": DUBBO_CASES + [
        "deadline_is_answered_by_one_voice", "plain_error_is_unknown", "error_metadata_arrives"],
}
ALL_DUBBO = [f"{mode}/{case}" for mode, cases in DUBBO_MODES.items() for case in cases]


def test_every_case_of_the_dubbo_client_is_a_test_here(go_programs):
    listed = subprocess.run([go_programs["dubbo-client"], "-list"], text=True, check=True,
                            stdout=subprocess.PIPE).stdout.split()
    assert sorted(listed) == sorted(ALL_DUBBO)


@pytest.fixture(scope="module")
def dubbo_direct_lines(go_programs, go_provider):
    return case_lines([go_programs["dubbo-client"], "-addr", go_provider.address, "-direct"])


@pytest.mark.parametrize("case", ALL_DUBBO)
def test_dubbo_client_direct(dubbo_direct_lines, case):
    check_case(dubbo_direct_lines, case)


@pytest.fixture(scope="module")
def dubbo_lines(go_programs, proxy):
    return case_lines([go_programs["dubbo-client"], "-addr", proxy.address["auto"]])


@pytest.mark.parametrize("case", ALL_DUBBO)
def test_dubbo_client_through_the_proxy(dubbo_lines, case):
    check_case(dubbo_lines, case)


# --- one proxy for each of the following: their counts must be exact --------------------------------

@pytest.fixture
def own_provider(go_programs):
    provider = Provider([go_programs["dubbo-provider"]], "dubbo-provider").start()
    yield provider
    provider.stop()


def simple(provider, **proxy_keys):
    return {"proxy": proxy_keys, "upstream echo": {"endpoints": provider.address},
            "route echo": {"match": f"{SERVICE}/*", "upstream": "echo"}}


@pytest.fixture
def own_proxy(own_provider, tmp_path):
    proxy = Proxy(["main"], simple(own_provider), tmp_path).start()
    yield proxy
    proxy.stop()


def endpoint(stats):
    return next(iter(stats["upstreams"]["echo"]["endpoints"].values()))


def test_500_sequential_calls_use_one_upstream_connection(go_programs, own_proxy):
    lines = case_lines([go_programs["grpc-client"], "-addr", own_proxy.address["main"], "-cases", "sequential_500_calls"])
    check_case(lines, "sequential_500_calls")
    stats = own_proxy.stats()
    assert endpoint(stats)["opened"] == 1
    assert stats["routes"]["echo"]["calls"] == 500
    assert stats["routes"]["echo"]["status"] == {"OK": 500}
    assert stats["routes"]["echo"]["path"]["fast"] == 500


SMALL = ("echo,message_of_exactly_4_mib_both_ways,request_metadata_keeps_values_and_order,"
         "details_arrive_in_order,bidi_stream_ping_pong_100,concurrent_1000_calls_on_one_connection")


def check_small(go_programs, address, *arguments):
    lines = case_lines([go_programs["grpc-client"], "-addr", address, "-cases", SMALL, *arguments])
    for case in SMALL.split(","):
        check_case(lines, case)


def test_a_unix_socket_serves_like_tcp(go_programs, own_provider, tmp_path):
    path = tmp_path / "main.sock"
    sections = {**simple(own_provider), "listener main": {"address": f"unix:{path}"}}
    proxy = Proxy(["main"], sections, tmp_path / "proxy").start()
    try:
        check_small(go_programs, f"unix:{path}", "-authority", "echo.example")
    finally:
        proxy.stop()


def test_ipv6_serves_like_ipv4(go_programs, own_provider, tmp_path):
    need(has_ipv6(), "this machine has no IPv6 on loopback")
    port = free_ports(1)[0]
    sections = {**simple(own_provider), "listener main": {"address": f"[::1]:{port}"}}
    proxy = Proxy(["main"], sections, tmp_path).start()
    try:
        check_small(go_programs, f"[::1]:{port}")
    finally:
        proxy.stop()


def test_two_workers_serve_like_one(go_programs, own_provider, tmp_path):
    proxy = Proxy(["main"], simple(own_provider, workers=2), tmp_path).start()
    try:
        check_small(go_programs, proxy.address["main"])
        load = Load(go_programs["load-client"], proxy.address["main"], "-seconds", "2", "-rate", "500",
                    "-connections", "8", "-streams")
        report = load.result()
        assert report["by_status"] == {"OK": report["calls"]}, report
        stats = proxy.stats()
        assert stats["routes"]["echo"]["started"] == stats["routes"]["echo"]["calls"]
    finally:
        proxy.stop()


def test_two_providers_share_the_calls_and_one_may_die(go_programs, own_provider, tmp_path):
    other = Provider([go_programs["dubbo-provider"]], "dubbo-provider").start()
    sections = simple(own_provider)
    sections["upstream echo"] = {"endpoints": f"{own_provider.address}, {other.address}"}
    proxy = Proxy(["main"], sections, tmp_path).start()
    try:
        load = Load(go_programs["load-client"], proxy.address["main"], "-seconds", "5", "-rate", "300", "-delay", "5")
        time.sleep(2)
        killed_ms = time.time() * 1000
        other.kill()
        report = load.result()
        assert set(report["by_status"]) <= {"OK", "Unavailable"}, report
        # Only what was under way there may be lost; the rest finds the other provider at once.
        assert report["by_status"].get("Unavailable", 0) <= 32, report
        assert report["last_failure_ms"] <= killed_ms + 500, report
        load = Load(go_programs["load-client"], proxy.address["main"], "-seconds", "1", "-rate", "300")
        report = load.result()
        assert report["by_status"] == {"OK": report["calls"]}, report
    finally:
        proxy.stop()
        other.stop()


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        return True
    except OSError:
        return False


class Load:
    """load-client in the background."""

    def __init__(self, program, address, *arguments):
        self.process = Process([program, "-addr", address, *arguments], "load-client")
        self.process.wait_for(lambda: "STARTED" in self.process.errors, "start")

    def result(self, seconds=60):
        self.process.popen.wait(seconds)
        code = self.process.stop()
        assert code == 0, self.process.output()
        return json.loads(self.process.lines[-1])


def test_provider_killed_under_load_and_started_again(go_programs, own_provider, own_proxy):
    load = Load(go_programs["load-client"], own_proxy.address["main"], "-seconds", "8", "-rate", "300", "-streams")
    time.sleep(2)
    before = endpoint(own_proxy.stats())
    own_provider.kill()
    time.sleep(2)
    own_provider.start()
    back_ms = time.time() * 1000
    report = load.result()
    stats = own_proxy.stats()
    after = endpoint(stats)

    assert report["calls"] + report["skipped"] == 8 * 300
    assert set(report["by_status"]) == {"OK", "Unavailable"}, report
    assert report["by_status"]["Unavailable"] > 0, "the kill was not noticed: the test shows nothing"
    assert report["wrong_replies"] == 0
    assert report["last_failure_ms"] - back_ms <= 2000, report
    assert report["last_ok_ms"] > back_ms + 2000, "calls did not go on after the restart"
    # Backoff doubles from 50 ms to 1 s: some six dials in two seconds, jitter aside.
    assert 1 <= after["failures"] - before["failures"] <= 10, (before, after)
    assert after["opened"] - before["opened"] <= 2, (before, after)
    assert stats["listeners"]["main"]["accepted"] == 1, "the client's connection was lost"
    route_stats = stats["routes"]["echo"]
    assert route_stats["calls"] == route_stats["started"] == report["calls"]
    assert route_stats["active"] == 0


def test_hup_under_load_loses_no_call(go_programs, own_provider, own_proxy):
    load = Load(go_programs["load-client"], own_proxy.address["main"], "-seconds", "6", "-rate", "400", "-streams",
                "-delay", "20")
    generation = own_proxy.stats()["config"]["generation"]
    good = dict(simple(own_provider))
    for turn in range(3):
        time.sleep(0.5)
        good["route echo"] = {**good["route echo"], "timeout": f"{10 + turn}s"}
        config = own_proxy.reload(own_proxy.text(good))
        assert config == {"generation": generation + 1, "error": None}
        generation += 1
        time.sleep(0.5)
        config = own_proxy.reload(own_proxy.text(good).replace("upstream = echo", "upstraem = echo"))
        assert config["generation"] == generation, "a bad file must change nothing"
        assert "upstraem" in config["error"], config
    report = load.result()
    assert report["by_status"] == {"OK": report["calls"]}, report
    assert report["wrong_replies"] == 0
    assert report["calls"] > 6 * 400 * 0.8, report
    stats = own_proxy.stats()
    assert stats["listeners"]["main"]["accepted"] == 1
    assert endpoint(stats)["opened"] == 1, "the upstream did not change, so its connection must stay"


def test_a_slow_reader_does_not_grow_memory(go_programs, own_proxy):
    lines = case_lines([go_programs["grpc-client"], "-addr", own_proxy.address["main"], "-cases",
                        "slow_reader_does_not_stop_other_calls"])
    check_case(lines, "slow_reader_does_not_stop_other_calls")
    # The stream carries 25 MiB; what may wait in the proxy is a window of 1 MiB and what is being read.
    assert own_proxy.stats()["buffers"]["peak_bytes"] <= 4 << 20
    assert own_proxy.stats()["buffers"]["bytes"] == 0


@pytest.mark.parametrize("transport", ["h2", "http1"])
def test_crashes_reloads_and_short_deadlines_together_lose_no_count(go_programs, tmp_path, transport):
    """Two workers, two providers of which one crashes again and again, a reload every half second, and
    clients whose deadlines end in the middle of everything."""
    providers = [Provider([go_programs["dubbo-provider"]], f"dubbo-provider {i}").start() for i in range(2)]
    sections = simple(providers[0], workers=2)
    sections["upstream echo"] = {"endpoints": ", ".join(each.address for each in providers), "transport": transport}
    proxy = Proxy(["main"], sections, tmp_path).start()
    try:
        common = [go_programs["load-client"], proxy.address["main"], "-seconds", "6"]
        loads = [Load(*common, "-rate", "200", "-streams", "-connections", "4"),
                 Load(*common, "-rate", "150", "-streams", "-timeout", "12ms", "-delay", "10"),
                 Load(*common, "-rate", "15", "-payload", "1500000", "-timeout", "60ms", "-delay", "10")]
        for turn in range(8):
            time.sleep(0.4)
            sections["route echo"]["timeout"] = f"{10 + turn}s"
            assert proxy.reload(proxy.text(sections))["error"] is None
            if turn % 2:
                providers[1].kill()
                time.sleep(0.2)
                providers[1].start()
        reports = [load.result() for load in loads]
        wait_until(lambda: proxy.stats()["listeners"]["main"]["connections"] == 0)
        stats = proxy.stats()
    finally:
        proxy.stop()
        for each in providers:
            each.stop()
    for report in reports:
        assert set(report["by_status"]) <= {"OK", "DeadlineExceeded", "Unavailable"}, report
        assert report["wrong_replies"] == 0, report
    lost = [text for report in reports for text in report["messages"] if "lost before the answer" in text]
    assert lost, "no crash hit a call: the test shows nothing"
    assert "DeadlineExceeded" not in reports[0]["by_status"], reports[0]
    calls = stats["routes"]["echo"]
    assert calls["started"] == calls["calls"] == sum(calls["status"].values()), calls
    assert calls["active"] == 0 and stats["buffers"]["bytes"] == 0, stats
    assert all(each["streams"] == 0 for each in stats["upstreams"]["echo"]["endpoints"].values()), stats
    assert stats["listeners"]["main"]["accepted"] == 6, "a client's connection was lost"


def wait_until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def test_term_with_nothing_to_do_ends_at_once(own_provider, tmp_path):
    proxy = Proxy(["main"], simple(own_provider), tmp_path).start()
    start = time.monotonic()
    proxy.stop()
    assert time.monotonic() - start < 1, proxy.process.output()


def test_term_under_load_lets_running_calls_end(go_programs, own_provider, tmp_path):
    proxy = Proxy(["main"], simple(own_provider), tmp_path).start()
    load = Load(go_programs["load-client"], proxy.address["main"], "-seconds", "4", "-rate", "200", "-delay", "300",
                "-concurrency", "200")
    time.sleep(2)
    proxy.stop()
    report = load.result()
    # After the drain nothing listens, so new calls fail to connect; but none that had begun may break.
    assert set(report["by_status"]) <= {"OK", "Unavailable"}, report
    broken = {text: n for text, n in report["messages"].items() if "Error while dialing" not in text}
    assert not broken, report
    assert report["by_status"]["OK"] >= 350, report
