"""The peers of test_java.py and matrix.py: Java programs from Maven, grpc-js from npm, grpcio.

Builds each once into peers.build_folder(), with the ordinary caches of mvn and npm and nothing else.
A build is kept as long as its sources do not change; mvn and npm ask their registries only for what
the caches lack. A machine without JDK 17, Maven or Node skips by name (with CI=true: fails).
"""
import functools
import hashlib
import os
import re
import shutil
import sys

import pytest

from peers import HERE, Provider, build_folder, built_once, case_lines, need, run_tool

JAVA_SOURCE = HERE / "java"
JS_SOURCE = HERE / "js"
PY_CLIENT = HERE / "py" / "client.py"
PROTO = HERE / "proto" / "echo.proto"
SERVICE = "tributary.interop.Echo"
JAVA_INTERFACE = "org.tributary.interop.Echo"
WRAPPER_SERVICE = "org.tributary.interop.Greeter"

# C1 and the serial collector: these JVMs live for seconds. hessian2 needs the two packages opened.
JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m",
       "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.math=ALL-UNNAMED"]

JAVA_PROVIDERS = {"dubbo-java 3.3": "dubbo33", "dubbo-java 3.2": "dubbo32"}


def _digest(*roots):
    """Changes when a file below the roots does."""
    summed = hashlib.sha256()
    for root in roots:
        files = sorted(each for each in root.rglob("*") if each.is_file()) if root.is_dir() else [root]
        for file in files:
            summed.update(str(file.relative_to(HERE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return summed.hexdigest()


def _build(name, digest, make):
    """Runs make(folder) unless the folder's stamp says that this was built already; the folder."""
    folder = build_folder() / name
    stamp = folder / "built-from"
    with built_once(name):
        if not (stamp.is_file() and stamp.read_text() == digest):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            stamp.write_text(digest)
    return folder


@functools.cache
def java_folder():
    """Folder with dubbo33/lib, dubbo32/lib and grpc/lib."""
    java, maven = shutil.which("javac"), shutil.which("mvn")
    need(java, "no JDK: the Java interop tests need JDK 17 or later")
    need(maven, "Maven is not installed: the Java interop tests need it")
    code, have = run_tool([java, "-version"], cwd="/")
    found = re.search(r"javac (\d+)", have)
    need(code == 0 and found and int(found.group(1)) >= 17,
         f"JDK 17 or later is needed for the Java interop tests, this machine has {have.strip()}")

    def make(folder):
        command = [maven, "-q", "-B", "-ntp", "package", f"-Dinterop.build={folder}"]
        # Offline first: with a filled cache that is quicker, and does not look for newer metadata.
        code, output = run_tool([*command, "--offline"], cwd=JAVA_SOURCE)
        if code != 0:
            code, output = run_tool(command, cwd=JAVA_SOURCE)
        need(code == 0 or "COMPILATION ERROR" in output,
             f"the Java interop tests' artifacts are not to be had: {output[-1500:]}")
        assert code == 0, f"mvn package failed:\n{output[-5000:]}"

    return _build("java", _digest(JAVA_SOURCE, PROTO.parent), make)


@functools.cache
def js_folder():
    """Folder with node_modules."""
    node, npm = shutil.which("node"), shutil.which("npm")
    need(node and npm, "Node and npm are not installed: the grpc-js client needs them")

    def make(folder):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(JS_SOURCE / name, folder)
        code, output = run_tool([npm, "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"],
                                cwd=folder)
        need(code == 0, f"the grpc-js client's packages are not to be had: {output[-1500:]}")

    return _build("js", _digest(JS_SOURCE / "package.json", JS_SOURCE / "package-lock.json"), make)


@functools.cache
def py_folder():
    """Folder with echo_pb2.py, for Python clients."""
    protoc = shutil.which("protoc")
    need(protoc, "protoc is not installed: the grpcio client needs it")

    def make(folder):
        code, output = run_tool([protoc, f"--proto_path={PROTO.parent}", f"--python_out={folder}", PROTO.name],
                                cwd=PROTO.parent)
        assert code == 0, output

    return _build("py", _digest(PROTO), make)


def java_command(module, main, *arguments):
    return ["java", *JVM, "-cp", f"{java_folder() / module / 'lib'}/*", f"org.tributary.interop.{main}", *arguments]


def java_provider(name):
    """A provider that is not started yet; name is a key of JAVA_PROVIDERS."""
    return Provider(java_command(JAVA_PROVIDERS[name], "Provider"), name)


def client_command(name, target):
    """The command of a client that runs named cases: --cases a,b,c may follow. name as in the matrix."""
    if name == "grpc-java":
        return java_command("grpc", "GrpcClient", "--target", target)
    if name in JAVA_PROVIDERS:
        # Dubbo looks for its compressor in the environment alone; see SwitchableGzip.java.
        return ["env", "DUBBO_RPC_TRI_COMPRESSOR=switchable",
                *java_command(JAVA_PROVIDERS[name], "Consumer", "--target", target)]
    if name == "grpc-js":
        return ["env", f"NODE_PATH={js_folder() / 'node_modules'}", "node", JS_SOURCE / "client.js",
                "--target", target, "--proto", PROTO]
    if name == "grpcio":
        return [sys.executable, PY_CLIENT, "--target", target, "--pb", py_folder()]
    raise ValueError(f"no client {name}")


def run_cases(name, target, cases=()):
    """{case: line} of that client against that address."""
    return case_lines(client_command(name, target) + (["--cases", ",".join(cases)] if cases else []))


def python_client(target, service=SERVICE):
    """py/client.py's Client in this process, for tests that make calls of their own."""
    for folder in (str(py_folder()), str(PY_CLIENT.parent)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    import client
    import echo_pb2
    return client.Client(target, service, echo_pb2)


# --- fixtures and parameters: import them by name into a test module --------------------------------

def name_of(value):
    """A test id without blanks."""
    return value.replace(" ", "-")


@pytest.fixture(scope="module")
def java_providers():
    started = {}
    try:
        for name in JAVA_PROVIDERS:
            started[name] = java_provider(name).start()
        yield started
    finally:
        for provider in started.values():
            provider.stop()
