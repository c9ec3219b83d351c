"""The configuration as a user meets it: --check, --print-config, what the program does with files that are wrong, and the
documentation that must agree with it. Needs TRIBUTARY_BIN."""
import configparser
import os
import pathlib
import re
import signal
import stat
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("TRIBUTARY_BIN", str(ROOT / "build" / "tributary"))
MINIMAL = """[listener main]
address = 127.0.0.1:17000
[upstream greeter]
endpoints = 127.0.0.1:20000
[route greet]
match = /greet.GreetService/*
upstream = greeter
"""
ERROR = re.compile(r"^(?P<file>.+):(?P<line>\d+): (?:\[(?P<section>[^\]]+)\] )?(?:(?P<key>[a-z0-9_]+): )?(?P<what>.+)$")


def run(*args, env=None):
    return subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=20,
                          env=dict(os.environ, **(env or {})))


def write(folder, content, name="t.ini"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def errors(path, env=None):
    """Each error of --check as (line, section, key, what); the exit code must be 1."""
    result = run("-c", path, "--check", env=env)
    assert result.returncode == 1, result
    found = [ERROR.match(line) for line in result.stderr.splitlines()]
    assert found and all(found), result.stderr
    assert all(match["file"] == str(path) for match in found)
    return [(int(match["line"]), match["section"], match["key"], match["what"]) for match in found]


def printed(path, env=None):
    result = run("-c", path, "--print-config", env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout


def parsed(text):
    """As another INI reader sees it."""
    reader = configparser.RawConfigParser(strict=True, delimiters=("=",), inline_comment_prefixes=None)
    reader.optionxform = str
    reader.read_string(text)
    return reader


def test_a_good_file_passes_the_check(tmp_path):
    result = run("-c", write(tmp_path, MINIMAL), "--check")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_every_error_is_told_at_once_in_the_order_of_the_file(tmp_path):
    path = write(tmp_path, "k = v\n[proxy]\nworkers = 080\nadmn = 127.0.0.1:1\n" + MINIMAL + "tiemout = 1s\n[sec\n")
    found = errors(path)
    assert [(line, section, key) for line, section, key, _ in found] == [
        (1, None, None), (3, "proxy", "workers"), (4, "proxy", "admn"), (12, "route greet", "tiemout"), (13, None, None)]
    assert "'admin'" in found[2][3]
    assert "'timeout'" in found[3][3]


# cases.md 48, a line each: what the file holds, what --print-config must show, or None where it must be refused.
TABLE = [
    ("a value with a semicolon is kept", "set_header = x-a: a:1;b:2", "set_header = x-a: a:1;b:2"),
    ("a value may start with a hash", "set_service = #x", "set_service = #x"),
    ("a comment behind a blank is cut", "timeout = 3s ; note", "timeout = 3s"),
    ("an indented comment is one", "timeout = 3s\n    ; note", "timeout = 3s"),
    ("an indented line is no continuation", "timeout = 3s\n    more", None),
    ("a value with an equals sign is kept", "set_header = x-a: b=c=d", "set_header = x-a: b=c=d"),
    ("a value of 5000 characters is kept", "set_header = x-a: " + "a" * 5000, "set_header = x-a: " + "a" * 5000),
    ("a line over 65535 characters", "set_header = x-a: " + "a" * 65536, None),
    ("a key twice", "timeout = 1s\ntimeout = 1s", None),
    ("a section twice", "[route greet]\nmatch = *\nupstream = greeter", None),
    ("an unknown key", "tiemout = 1s", None),
    ("a leading zero", "[listener b]\naddress = 127.0.0.1:080", None),
    ("a negative port", "[listener b]\naddress = 127.0.0.1:-1", None),
    ("a port too high", "[listener b]\naddress = 127.0.0.1:65536", None),
    ("an exponent", "[listener b]\naddress = 127.0.0.1:5\nmax_streams = 1e3", None),
    ("a blank in a duration", "timeout =  5 s", None),
    ("an unclosed section", "[sec", None),
    ("text behind a section", "[listener b] x", None),
    ("no key at all", "= 5", None),
    ("no equals sign", "timeout: 5s", None),
]


@pytest.mark.parametrize("line,shown", [row[1:] for row in TABLE], ids=[row[0].replace(" ", "-") for row in TABLE])
def test_a_line_is_read_as_documented_or_refused(tmp_path, line, shown):
    path = write(tmp_path, MINIMAL + line + "\n")
    if shown is None:
        assert all(at >= 8 for at, _, _, _ in errors(path))
    else:
        assert shown in printed(path).splitlines()


@pytest.mark.parametrize("bytes_of", [
    b"\xef\xbb\xbf" + MINIMAL.encode(),
    MINIMAL.replace("\n", "\r\n").encode(),
    MINIMAL.rstrip("\n").encode(),
    b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").rstrip().encode(),
], ids=["bom", "crlf", "no-final-newline", "all-three"])
def test_what_editors_leave_in_files_changes_nothing(tmp_path, bytes_of):
    assert printed(write(tmp_path, bytes_of)) == printed(write(tmp_path, MINIMAL, "plain.ini"))


def test_a_key_before_any_section_is_refused(tmp_path):
    assert errors(write(tmp_path, "workers = 1\n" + MINIMAL))[0][0] == 1


def test_nul_bytes_are_refused(tmp_path):
    assert errors(write(tmp_path, MINIMAL.encode() + b"timeout = 1s\0\n"))[0][0] == 8


def test_an_empty_file_says_what_is_missing(tmp_path):
    assert "[listener NAME]" in errors(write(tmp_path, ""))[0][3]


def test_files_that_are_none(tmp_path):
    assert "directory" in errors(tmp_path)[0][3]
    assert "No such file" in errors(tmp_path / "missing.ini")[0][3]
    os.mkfifo(tmp_path / "fifo")
    assert "regular file" in errors(tmp_path / "fifo")[0][3]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission(tmp_path):
    path = write(tmp_path, MINIMAL)
    path.chmod(0)
    assert "Permission denied" in errors(path)[0][3]
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_a_start_with_a_bad_file_exits_1_with_the_same_errors(tmp_path):
    path = write(tmp_path, MINIMAL + "tiemout = 1s\n")
    result = run("-c", path)
    assert result.returncode == 1
    assert f"{path}:8: [route greet] tiemout: no such key; did you mean 'timeout'?" in result.stderr


@pytest.fixture
def proxy(tmp_path):
    """A running proxy: its file to rewrite, and reload(), which gives the log lines that followed."""
    path, log = write(tmp_path, MINIMAL.replace(":17000", ":0")), tmp_path / "log"
    with open(log, "w") as out:
        process = subprocess.Popen([BIN, "-c", path], stdout=out, stderr=out)

    def wait_for(text, start=0):
        for _ in range(200):
            lines = log.read_text()[start:]
            if text in lines or process.poll() is not None:
                break
            time.sleep(0.05)
        assert process.poll() is None and text in lines, lines
        return lines

    def reload(content, expected):
        start = len(log.read_text())
        write(tmp_path, content)
        process.send_signal(signal.SIGHUP)
        return wait_for(expected, start)

    wait_for("listener main on 127.0.0.1:")
    yield reload
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


def test_a_reload_with_a_bad_file_tells_every_error_and_goes_on(proxy, tmp_path):
    good = MINIMAL.replace(":17000", ":0")
    lines = proxy(good + "tiemout = 1s\nfast_path = maybe\n", "fast_path: ")
    assert f"{tmp_path}/t.ini:8: [route greet] tiemout: no such key; did you mean 'timeout'?" in lines
    assert f"{tmp_path}/t.ini:9: [route greet] fast_path: 'maybe' is neither on, off nor a share" in lines
    proxy("", "no [listener NAME] section")
    proxy(good + "timeout = 1s\n", "configuration 2 is running")


def test_a_reload_names_what_it_cannot_change(proxy):
    lines = proxy("[proxy]\nworkers = 2\n" + MINIMAL.replace(":17000", ":1"), "configuration 2 is running")
    assert "[proxy] workers: a reload can't change it" in lines
    assert "[listener main] address: a reload can't change it" in lines


def test_the_printed_configuration_reads_back_the_same(tmp_path):
    path = write(tmp_path, MINIMAL + "fast_path = 10%\nset_header = x-a: 1, 2\nset_header = x-b: 3\nmatch_header = x-c\n"
                 "[listener b]\naddress = [::1]:1, unix:/tmp/x\naddress = 127.0.0.1:2\nreset_limit = off\n")
    first = printed(path)
    assert printed(write(tmp_path, first, "again.ini")) == first


def test_the_printed_configuration_is_complete_for_other_readers(tmp_path):
    reader = parsed(printed(write(tmp_path, MINIMAL)))
    assert reader.sections() == ["proxy", "listener main", "upstream greeter", "route greet"]
    assert reader["proxy"]["buffer_budget"] == "auto"
    assert reader["proxy"]["drain_timeout"] == "25s"
    assert reader["listener main"]["reset_limit"] == "2000/10s"
    assert reader["upstream greeter"]["lb_policy"] == "least_request"
    assert reader["route greet"]["fast_path_max"] == "64K"
    assert reader["route greet"]["filters"] == ""


def test_the_environment_is_put_in(tmp_path):
    path = write(tmp_path, "[listener main]\naddress = ${TEST_IP}:${TEST_PORT:-17000}\n")
    assert "address = 127.0.0.7:17000" in printed(path, env={"TEST_IP": "127.0.0.7"})
    assert "${TEST_IP} has no value" in errors(path, env={"TEST_IP": ""})[0][3]


def test_the_examples_pass_the_check():
    for path in sorted((ROOT / "conf").glob("*.ini")):
        result = run("-c", path, "--check")
        assert result.returncode == 0, result.stderr


def test_the_full_example_says_the_defaults(tmp_path):
    """Every key stands there, and taking away those with a default changes nothing."""
    example = ROOT / "conf" / "tributary.ini"
    known = parsed(printed(example))
    said = parsed(example.read_text())
    for section in known.sections():
        assert sorted(known[section]) == sorted(said[section]), section
    needed = {"admin", "address", "endpoints", "match", "upstream"}
    least = "".join(f"[{section}]\n" + "".join(f"{key} = {said[section][key]}\n" for key in said[section] if key in needed)
                    for section in said.sections())
    assert printed(write(tmp_path, least)) == printed(example)


def test_filters_are_known_by_their_types(tmp_path):
    path = write(tmp_path, MINIMAL + "filters = strip, limit\n"
                 "[filter strip]\ntype = headers\nremove_request = x-a, x-b\n[filter limit]\ntype = rate_limit\nrate = 5/1s\n")
    first = printed(path)
    assert "filters = strip, limit" in first
    assert "rate = 5/1s" in first
    assert printed(write(tmp_path, first, "again.ini")) == first
    path = write(tmp_path, MINIMAL + "[filter limit]\ntype = ratelimit\n")
    assert "did you mean 'rate_limit'?" in errors(path)[0][3]


def documented_keys(path):
    """Rows of a Markdown table of keys under a heading that names the section: {section: {key: default}}."""
    tables, section = {}, None
    for line in path.read_text().splitlines():
        heading = re.match(r"#+ \[(\w+)", line)
        row = re.match(r"\| `(\w+)` \| (?:`([^`]*)`|(required)|) \| ", line)
        if heading:
            section = heading[1]
        elif row and section:
            tables.setdefault(section, {})[row[1]] = row[2] or ""
    return tables


def test_the_documented_keys_are_the_program_s_with_its_defaults(tmp_path):
    tables = documented_keys(ROOT / "README.md")
    reader = parsed(printed(write(tmp_path, MINIMAL)))
    given = {"address", "endpoints", "match", "upstream"}
    for section in reader.sections():
        kind = section.split()[0]
        assert list(tables[kind]) == list(reader[section]), section
        wrong = {key: (tables[kind][key], value) for key, value in reader[section].items()
                 if key not in given and tables[kind][key] != value}
        assert not wrong, section


def ini_blocks(path):
    """Fenced or indented blocks of a page that start with a section."""
    text = path.read_text()
    fenced = re.findall(r"^```ini\n(.*?)^```", text, re.M | re.S)
    indented = [re.sub(r"^    ", "", block, flags=re.M)
                for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)]
    return [block.strip("\n") + "\n" for block in fenced + indented if re.match(r"\s*\[(proxy|listener \w+)\]\n", block)]


def test_the_readme_s_configurations_pass_the_check(tmp_path):
    blocks = ini_blocks(ROOT / "README.md")
    assert blocks, "the README shows no configuration"
    for block in blocks:
        result = run("-c", write(tmp_path, block), "--check")
        assert result.returncode == 0, block + result.stderr


def test_keys_that_the_readme_mentions_elsewhere_have_the_default_it_gives(tmp_path):
    """Rows outside the table of all keys: | `key` | `default` | …"""
    reader = parsed(printed(write(tmp_path, MINIMAL)))
    defaults = {}
    for section in reader.sections():
        for key, value in reader[section].items():
            defaults.setdefault(key, set()).add(value)
    prose = re.sub(r"<!-- keys: begin.*<!-- keys: end -->", "", (ROOT / "README.md").read_text(), flags=re.S)
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| ", prose, re.M)
    assert rows, "the README mentions no key with its default"
    for key, default in rows:
        assert default in defaults.get(key, ()), key
