"""The process as a container's first one: its logs line by line, its signals as PID 1, and one line for what keeps it from starting."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

import h2peer
from conftest import Program, ask, binary, find_free_port, wait_until_true

PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]*)(?: |$)')


def logfmt(line):
    """The pairs of a line; fails where anything of it is no pair."""
    pairs, at = {}, 0
    while at < len(line):
        found = PAIR.match(line, at)
        assert found, f"no pair at {line[at:at + 40]!r} of {line!r}"
        assert found[1] not in pairs, line
        pairs[found[1]] = json.loads(found[2]) if found[2].startswith('"') else found[2]
        at = found.end()
    return pairs


READERS = {"logfmt": logfmt, "json": json.loads}
FORMATS = pytest.mark.parametrize("log_format", ["logfmt", "json"])
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


STRANGE = "/tributary.demo.Echo/a=b,%22{c}'\\n"


def start_with(tributary, provider, where, log_format, **more):
    proxy = f"log = {where}\nlog_format = {log_format}\naccess_log = {where}\nlog_level = debug"
    return tributary(provider, proxy=proxy, ready=False, **more)


@FORMATS
@pytest.mark.parametrize("where", ["stdout", "stderr"])
def test_every_line_of_log_and_access_log_parses(tributary, echo, log_format, where):
    """Whatever clients put into paths and metadata: each line stays one line."""
    program = start_with(tributary, echo(), where, log_format)
    text = program.output if where == "stdout" else program.errors
    wait_until_true(lambda: program.is_ready(), "ready")
    target = wait_until_true(lambda: re.search(r"listener main on ([\d.:]+)", text()), "the banner")[1]
    client = h2peer.Client(target)
    client.call("/tributary.demo.Echo/Say", h2peer.MSG("hi")).says(0, ["hi"])
    client.call(STRANGE, h2peer.MSG("hi")).says(12)
    client.call("/nobody.Here/At=all", h2peer.MSG("hi")).says(12)
    client.call("/tributary.demo.Echo/Say", b"\2broken").says(13)
    client.close()
    program.file.write_text(program.file.read_text() + "nonsense = \"quoted\"\n")
    program.send(signal.SIGHUP)
    wait_until_true(lambda: "nonsense" in text(), "the reload's error")
    program.stop()
    other = program.errors if where == "stdout" else program.output
    assert other() == ""
    assert text().endswith("\n")
    lines = [READERS[log_format](line) for line in text().splitlines()]
    assert all(TIME.fullmatch(line["time"]) for line in lines)
    access = [line for line in lines if "method" in line]
    log = [line for line in lines if "method" not in line]
    assert [line["status"] for line in access] == ["OK", "UNIMPLEMENTED", "UNIMPLEMENTED", "INTERNAL"], access
    assert access[1]["method"] == STRANGE
    assert all(line["level"] in ("debug", "info", "warn", "error") and line["tag"] and line["msg"] for line in log)
    if log_format == "json":
        assert isinstance(access[0]["total_us"], int)


@FORMATS
def test_the_banner_says_what_listens_where_and_which_route_goes_where(tributary, log_format):
    admin, probe, one, two = (f"127.0.0.1:{find_free_port()}" for _ in range(4))
    text = f"""[proxy]
        admin = {admin}
        probe = {probe}
        log_format = {log_format}
        [listener inner]
        address = {one}
        [listener outer]
        address = {two}
        [upstream first]
        endpoints = 127.0.0.1:1
        [upstream second]
        endpoints = 127.0.0.1:2
        [route special]
        match = /a.B/C, /a.D/*
        upstream = second
        [route rest]
        match = *
        upstream = first
        """.replace("        ", "")
    program = tributary(text=text, ready=False)
    wait_until_true(lambda: f"probe on {probe}" in program.errors(), "the banner")
    said = [READERS[log_format](line)["msg"] for line in program.errors().splitlines()]
    assert any(re.fullmatch(rf"tributary \d\S+, 1 worker\(s\), configuration {re.escape(str(program.file))}", line) for line in said)
    for line in (f"listener inner on {one}", f"listener outer on {two}", f"admin on {admin}", f"probe on {probe}",
                 "route rest: * to upstream first"):
        assert line in said
    special = next(line for line in said if line.startswith("route special: /a.B/C"))
    assert special.endswith(" to upstream second")


def test_usr1_reopens_files_and_no_line_is_lost(tributary, tmp_path):
    log = tmp_path / "proxy.log"
    program = tributary("127.0.0.1:1", proxy=f"log = {log}", ready=False)
    wait_until_true(program.is_ready, "ready")
    log.rename(tmp_path / "proxy.log.1")
    program.send(signal.SIGUSR1)
    wait_until_true(log.exists, "the new file")
    program.stop()
    assert "tributary " in (tmp_path / "proxy.log.1").read_text()
    assert "draining" in log.read_text()


def test_a_log_that_nobody_reads_does_not_stop_the_proxy(tributary, echo, started, tmp_path):
    """As a container whose log collector stands still: the pipe is full, calls go on, and the loss is said once it is read again."""
    provider = echo()
    target = f"127.0.0.1:{find_free_port()}"
    file = tmp_path / "stuck.ini"
    file.write_text(f"[proxy]\naccess_log = stdout\n[listener main]\naddress = {target}\n[upstream u]\nendpoints = {provider.target}\n"
                    "[route r]\nmatch = *\nupstream = u\n")
    popen = subprocess.Popen([binary(), "-c", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        wait_until_true(lambda: listens(target), "listening")
        client = h2peer.Client(target)
        for _ in range(1000):
            client.call("/tributary.demo.Echo/Say", h2peer.MSG("hi")).says(0, ["hi"])
        got = os.read(popen.stdout.fileno(), 1 << 20)
        client.call("/tributary.demo.Echo/Say", h2peer.MSG("hi")).says(0, ["hi"])
        client.close()
    finally:
        popen.terminate()
        rest, _ = popen.communicate(timeout=20)
    assert popen.returncode == 0
    lines = [logfmt(line) for line in (got + rest).decode().splitlines()]
    lost = sum(int(line.get("lost", 0)) for line in lines)
    assert lost > 0, "the pipe never filled: the test shows nothing"
    assert len(lines) + lost == 1001


def listens(target):
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 1).close()
        return True
    except ConnectionRefusedError:
        return False


# --- as PID 1 -------------------------------------------------------------------------------------------


@pytest.fixture
def first_process(started, tmp_path, echo):
    """The proxy as PID 1 of a PID namespace: (Program of unshare, the proxy's pid outside, admin's address, listener's)."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-p", "-f", "true"], capture_output=True).returncode != 0:
        message = "needs root and PID namespaces"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    admin, target = (f"127.0.0.1:{find_free_port()}" for _ in range(2))
    file = tmp_path / "first.ini"
    file.write_text(f"[proxy]\nadmin = {admin}\n[listener main]\naddress = {target}\n[upstream u]\nendpoints = {echo().target}\n"
                    "[route r]\nmatch = *\nupstream = u\n")
    program = Program(["unshare", "-p", "--fork", "--mount-proc", binary(), "-c", file], tmp_path, "first")
    program.said("admin on")
    wait_until_true(lambda: ask(admin, "/ready").status == 200, "ready")
    child = int(open(f"/proc/{program.pid}/task/{program.pid}/children").read().split()[0])
    status = open(f"/proc/{child}/status").read()
    assert re.search(r"^NSpid:\s+\d+\s+1$", status, re.M), "it is PID 1 in there"
    yield program, child, admin, target
    if program.running():
        os.kill(child, signal.SIGKILL)
        program.wait()
    program.check()


@pytest.mark.parametrize("number, said", [(signal.SIGTERM, "draining"), (signal.SIGINT, "stopping now: SIGINT")])
def test_pid_1_takes_term_and_int(first_process, number, said):
    program, child, _, target = first_process
    h2peer.Client(target).call("/tributary.demo.Echo/Say", h2peer.MSG("hi")).says(0, ["hi"])
    os.kill(child, number)
    assert program.wait(10) == 0
    assert said in program.errors() and "stopped" in program.errors()


def test_pid_1_reloads_on_hup(first_process):
    program, child, admin, _ = first_process
    os.kill(child, signal.SIGHUP)
    wait_until_true(lambda: json.loads(ask(admin, "/stats").body)["config"]["generation"] == 2, "the reload")
    os.kill(child, signal.SIGUSR1)
    assert program.running()


def test_orphans_of_pid_1_leave_no_zombies(first_process):
    """A process that a health check left behind becomes ours when its parent ends."""
    program, child, admin, _ = first_process
    if not shutil.which("nsenter"):
        pytest.skip("needs nsenter")
    for _ in range(3):
        subprocess.run(["nsenter", "-t", str(child), "-p", "-m", "sh", "-c", "(sleep 0.5 &) ; exit 0"], check=True)
    assert len(children(child)) == 3, "they became its children"
    wait_until_true(lambda: not children(child), "no child, not even as a zombie")
    assert ask(admin, "/ready").status == 200
    os.kill(child, signal.SIGTERM)
    assert program.wait(10) == 0


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


# --- what keeps it from starting --------------------------------------------------------------------------


def one_line(run, code, *expected):
    assert run.returncode == code, (run.stdout, run.stderr)
    assert run.stdout == ""
    lines = run.stderr.splitlines()
    assert len(lines) == 1, run.stderr
    for each in expected:
        assert each.lower() in lines[0].lower(), lines[0]


def config(tmp_path, proxy="", listener="address = 127.0.0.1:0", name="start.ini"):
    file = tmp_path / name
    file.write_text(f"[proxy]\n{proxy}\n[listener main]\n{listener}\n[upstream u]\nendpoints = 127.0.0.1:1\n"
                    "[route r]\nmatch = *\nupstream = u\n")
    return file


@pytest.mark.parametrize("key", ["listener", "admin", "probe"])
def test_a_taken_port_is_one_line_and_code_2(run_tributary, tmp_path, key):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        file = config(tmp_path, listener=f"address = {address}") if key == "listener" else config(tmp_path, f"{key} = {address}")
        one_line(run_tributary("-c", file), 2, "tributary: ", key, address, "address already in use")


def test_a_missing_file_is_one_line_and_code_1(run_tributary, tmp_path):
    missing = tmp_path / "none.ini"
    one_line(run_tributary("-c", missing), 1, str(missing), "No such file")


def test_a_log_that_cannot_be_opened_is_one_line_and_code_1(run_tributary, tmp_path):
    one_line(run_tributary("-c", config(tmp_path, f"log = {tmp_path}/none/proxy.log")), 1, "[proxy] log", "none/proxy.log", "No such file")


@pytest.mark.parametrize("bad", ["missing", "garbage", "mismatch"])
def test_a_key_or_certificate_that_is_not_usable_is_one_line_and_code_1(run_tributary, tmp_path, bad):
    for name in ("one", "two"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                        "-subj", "/CN=x", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt"],
                       check=True, capture_output=True)
    if bad == "garbage":
        (tmp_path / "one.key").write_text("no key at all\n")
    key = {"missing": "none.key", "garbage": "one.key", "mismatch": "two.key"}[bad]
    file = config(tmp_path, listener=f"address = 127.0.0.1:0\ntls_cert = {tmp_path}/one.crt\ntls_key = {tmp_path}/{key}")
    one_line(run_tributary("-c", file), 1, f"{file}:", "[listener main] tls_", key)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to drop it")
def test_a_key_without_read_permission_is_one_line_and_code_1(tmp_path):
    """As the image's user, which is not root: what a secret mounted with mode 0400 is to it."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                    "-subj", "/CN=x", "-keyout", tmp_path / "a.key", "-out", tmp_path / "a.crt"], check=True, capture_output=True)
    (tmp_path / "a.key").chmod(0o400)
    file = config(tmp_path, listener=f"address = 127.0.0.1:0\ntls_cert = {tmp_path}/a.crt\ntls_key = {tmp_path}/a.key")
    (tmp_path / "a.crt").chmod(0o644)
    file.chmod(0o644)
    copy = shutil.copy(binary(), tmp_path / "tributary")
    for folder in (tmp_path, *tmp_path.parents):  # the test's folders are its user's alone
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    run = subprocess.run(["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", copy, "-c", file], capture_output=True, text=True,
                         timeout=20)
    one_line(run, 1, f"{file}:", "[listener main] tls_key", "a.key", "Permission denied")


def test_a_bad_ini_file_is_a_line_for_each_error(run_tributary, tmp_path):
    file = config(tmp_path, "workers = many\nlog_fromat = json")
    run = run_tributary("-c", file)
    assert run.returncode == 1 and run.stdout == ""
    assert [line.split(": ")[0] for line in run.stderr.splitlines()] == [f"{file}:2", f"{file}:3"], run.stderr
    assert "workers" in run.stderr and "log_format" in run.stderr, "the nearest known key is named"
