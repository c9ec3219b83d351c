"""Proof of what ran: that calls reached their provider in the form, over the transport, on the path and with
the encodings that a scenario's name claims. Whatever contradicts the name raises.

Who says so: the stub provider's own counts by form; a real provider's count of calls and what it tells
of one call's headers; for tributary, the path counts and the endpoint's state in /stats. What was never
told by anybody is left out, not assumed.
"""

import time

TAKES_ENOUGH = 0.99  # share of the calls that must have had the form that is claimed
SETTLE_SECONDS = 2


def settled(counts):
    """counts(), once it stands still: calls that the last run has left behind may still arrive."""
    end_at = time.monotonic() + SETTLE_SECONDS
    before = counts()
    while time.monotonic() < end_at:
        time.sleep(0.03)
        now = counts()
        if now == before:
            break
        before = now
    return before


def form_of(scenario, target):
    return "framed" if scenario.mode == "streaming" else target.form


def check_form(scenario, target, before, after, calls):
    """Raises when the provider saw something else than the scenario's name says; else what it saw."""
    ran = {key: after[key] - before[key] for key in after}
    if "calls" in ran:  # a real provider: it counts, and tells the form of single calls only
        if ran["calls"] < calls:
            raise RuntimeError(f"{calls} calls were made, the provider counted {ran['calls']}")
        return ran
    whole = ran["framed"] + ran["bare_h2"] + ran["bare_h1"]
    form = form_of(scenario, target)
    if ran[form] < TAKES_ENOUGH * whole or whole < calls:
        raise RuntimeError(f"{calls} calls should have reached the provider as {form}, it saw {ran}")
    packed = scenario.compression != "none"
    if not packed and (ran["gzip_in"] or ran["gzip_out"]):
        raise RuntimeError(f"nothing should have been compressed, the provider saw {ran}")
    if packed and scenario.mode == "unary":
        share = ran["gzip_in"] / max(1, whole)
        if share > 1 - TAKES_ENOUGH if target.unpacks else share < TAKES_ENOUGH:
            state = "plain" if target.unpacks else "compressed"
            raise RuntimeError(f"requests should have arrived {state}, the provider saw {ran}")
    return ran


def check_path(scenario, target, before, calls):
    if before is None or scenario.mode == "streaming":
        return None
    wrong = target.wrong(before, calls)
    if wrong:
        raise RuntimeError(wrong)
    now = target.counts()
    return {path: now[path] - before[path] for path in now}


def check_headers(scenario, target):
    """What a real provider tells of a call through this target; None: the target's provider cannot."""
    if not hasattr(target, "headers"):
        return None
    seen = target.headers(scenario.compression != "none")
    packed = {seen.get("content-encoding"), seen.get("grpc-encoding")} - {None}
    if scenario.compression == "none" and packed - {"identity"}:
        raise RuntimeError(f"nothing should have been compressed, the provider saw {seen}")
    return seen


def added(rounds, key):
    """Sums of a dictionary of counts over all rounds; None where no round has it."""
    found = [report["ran"].get(key) for report in rounds]
    if not found or any(each is None for each in found):
        return None
    return {name: sum(each[name] for each in found) for name in found[0]}


def encodings_of(scenario, target, saw, headers):
    """What the client sent, and what the provider saw and did, where it tells."""
    told = {"client_request": "none" if scenario.compression == "none" else "gzip"}
    if saw and "gzip_in" in saw:
        told["provider_request"] = "gzip" if saw["gzip_in"] else "none"
        told["provider_reply"] = "gzip" if saw["gzip_out"] else "none"
    elif headers and target.tells_encoding:
        told["provider_request"] = headers.get("content-encoding") or headers.get("grpc-encoding") or "none"
    return told


def of_scenario(scenario, target, rounds, version):
    """For the scenario's file: one place that says what ran."""
    form = form_of(scenario, target)
    saw = added(rounds, "provider")
    provider = target.provider
    endpoint = getattr(target, "endpoints", lambda: None)()
    return {
        "wire_form": form.partition("_")[0],
        "transport": "http1" if form == "bare_h1" else "h2",
        "paths": added(rounds, "path"),
        "provider_saw": saw,
        "provider_headers": rounds[0]["ran"].get("headers"),
        "endpoint": endpoint,
        "encodings": encodings_of(scenario, target, saw, rounds[0]["ran"].get("headers")),
        "versions": {"framework": version, "provider": provider.version() if provider else "unknown: not started here"},
    }
