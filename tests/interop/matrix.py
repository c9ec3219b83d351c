"""The README's matrix: every client against every provider, directly and through the proxy.

    matrix.py                   measures and prints the table
    matrix.py --readme FILE     measures and replaces what stands between the two marker lines of FILE

A cell is `works` when the case is ok through the proxy. When it is not, and the same client fails at
the same provider asked directly in the same run, the cell says in a note what the provider itself
cannot do. A case that is ok directly and not through the proxy is the proxy's fault: such a cell says
FAULT, and the run exits 1. The same goes for what a case sees beside its verdict: response metadata
that comes with an error directly must come through the proxy too.

Needs $TRIBUTARY_BIN; builds the peers below $TRIBUTARY_BUILD (see peers.py).
"""
import argparse
import concurrent.futures
import sys
import tempfile
from pathlib import Path

import java_peers
import peers

CASES = {"unary": "unary", "error": "error", "deadline": "deadline", "cancel": "cancel", "server": "server stream",
         "client": "client stream", "bidi": "bidi stream", "big": "4 MiB", "gzip": "gzip request"}
CLIENTS = ("grpc-go", "grpc-java", "grpcio", "grpc-js", "dubbo-go", "dubbo-java 3.2", "dubbo-java 3.3")
PROVIDERS = ("dubbo-go", "dubbo-java 3.2", "dubbo-java 3.3")
BEGIN = "<!-- matrix: written by tests/interop/matrix.py -->"
END = "<!-- end of matrix -->"

# What providers are known not to do when asked directly, as it reads in the note. The key is a part of
# the direct run's own words; a failure that none of these explains is quoted as it is.
KNOWN = (
    ("byte distribution", "closes the connection (GOAWAY INTERNAL_ERROR) when a reply fills the client's window"),
    ("%20such%20thing", "encodes the message inside grpc-status-details-bin a second time"),
    ("thing%3A", "percent-encodes characters that this client's decoder leaves alone"),
)
NO_METADATA = "code and message; the provider drops response metadata on errors"
CLIENT_NO_METADATA = "code and message; this client's API gives no response metadata with errors, from any provider"


def run_client(client, target):
    """{case: line} of the nine cases."""
    if client in ("grpc-go", "dubbo-go"):
        peers.build_go_programs()
        program = peers.build_folder() / "go" / "matrix-client"
        return peers.case_lines([program, "-kind", client.split("-")[0], "-target", target])
    # The large ones last: directly they may cost the connection, and the next case would pay for that.
    return java_peers.run_cases(client, target, sorted(CASES, key=lambda case: case in ("gzip", "big")))


def make_provider(name):
    if name == "dubbo-go":
        return peers.Provider([peers.build_go_programs()["dubbo-provider"]], name)
    return java_peers.java_provider(name)


def listener_name(provider):
    return provider.replace(" ", "-").replace(".", "")


def measure(folder):
    """{(client, provider): (direct lines, proxied lines)}, and the proxy's stats at the end."""
    providers = {}
    proxy = None
    try:
        for name in PROVIDERS:
            providers[name] = make_provider(name).start()
        sections = {}
        for name, provider in providers.items():
            short = listener_name(name)
            sections[f"upstream {short}"] = {"endpoints": provider.address}
            sections[f"route {short}"] = {"match": "*", "listener": short, "upstream": short}
        proxy = peers.Proxy([listener_name(name) for name in PROVIDERS], sections, folder).start()
        pairs = [(client, name) for client in CLIENTS for name in PROVIDERS]

        def both(pair):
            client, name = pair
            return (run_client(client, providers[name].address),
                    run_client(client, proxy.address[listener_name(name)]))

        # Two at a time: most of a run is waiting, and deadlines leave room for it.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lines = dict(zip(pairs, pool.map(both, pairs)))
        return lines, proxy.stats()
    finally:
        if proxy and proxy.process:
            proxy.process.stop()
        for provider in providers.values():
            provider.stop()


def explain(provider, detail):
    """One line on what the provider did when asked directly."""
    for words, note in KNOWN:
        if words in detail:
            return f"{provider} {note}"
    return f"{provider}, asked directly: {detail[:160]}"


def cell(client, provider, case, direct, proxied):
    """("works" | "fault" | "limit", note or None) of one cell, from its two lines."""
    missing = {"ok": False, "detail": "the client did not get to this case", "facts": {}}
    direct, proxied = direct.get(case, missing), proxied.get(case, missing)
    if not proxied["ok"]:
        if direct["ok"]:
            return "fault", proxied["detail"][:300]
        return "limit", explain(provider, direct["detail"])
    if proxied["facts"].get("metadata", True):
        return "works", None
    if direct["facts"].get("metadata", False):
        return "fault", "metadata comes with the error directly, and not through the proxy"
    if client.startswith("dubbo-java"):
        return "works", f"{client}: {CLIENT_NO_METADATA}"
    return "works", f"{provider}: {NO_METADATA}"


def cells(lines):
    """{(client, provider, case): (kind, note)}"""
    return {(client, provider, case): cell(client, provider, case, direct, proxied)
            for (client, provider), (direct, proxied) in lines.items() for case in CASES}


def markdown(table):
    """The table and its notes as README text."""
    notes = []
    out = ["| client | provider | " + " | ".join(CASES.values()) + " |",
           "|---|---|" + "---|" * len(CASES)]
    for client in CLIENTS:
        for provider in PROVIDERS:
            row = []
            for case in CASES:
                kind, note = table[client, provider, case]
                if note and note not in notes:
                    notes.append(note)
                mark = f" ({notes.index(note) + 1})" if note else ""
                row.append({"works": "works", "limit": "provider", "fault": "**FAULT**"}[kind] + mark)
            out.append(f"| {client} | {provider} | " + " | ".join(row) + " |")
    out += [""] + [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(out).rstrip() + "\n"


def replace_between_markers(text, table):
    before, found_begin, rest = text.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise SystemExit(f"no lines {BEGIN!r} and {END!r} to put the table between")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--readme", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tributary-matrix-") as folder:
        table = cells(measure(folder)[0])
    text = markdown(table)
    print(text)
    if given.readme:
        given.readme.write_text(replace_between_markers(given.readme.read_text(), text))
    sys.exit(1 if any(kind == "fault" for kind, _ in table.values()) else 0)


if __name__ == "__main__":
    main()
