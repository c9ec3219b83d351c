"""The house rules that a machine can check: folder arrows, include cycles, who may include which library, file sizes."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = ["proxy/base", "proxy/wire", "proxy/stats", "proxy/net", "proxy/call", "proxy/config"]
ENDS = ["downstream", "upstream", "filters"]
TOP = "proxy"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)


def sources():
    for folder in FLOORS + ENDS + [TOP]:
        for path in sorted((ROOT / folder).glob("*.[ch]")):
            yield path.relative_to(ROOT)


def includes(path, bracket='"'):
    return [name for kind, name in INCLUDE.findall((ROOT / path).read_text()) if kind == bracket]


def folder(path):
    return str(pathlib.PurePath(path).parent)


def allowed(source):
    """Folders that a file in `source` may include from."""
    if source in FLOORS:
        return set(FLOORS[: FLOORS.index(source) + 1])
    if source in ENDS:
        return set(FLOORS) | {source}
    return set(FLOORS) | {TOP}


def test_there_is_something_to_check():
    assert len(list(sources())) > 40


def test_folder_arrows_point_one_way():
    wrong = [f"{path} includes {name}" for path in sources() for name in includes(path)
             if (ROOT / name).exists() and folder(name) not in allowed(folder(path))]
    assert not wrong, "\n".join(wrong)


def test_own_includes_name_a_path_from_the_root():
    wrong = [f"{path} includes {name}" for path in sources() for name in includes(path)
             if not (ROOT / name).exists() and not name.endswith((".pb-c.h",))]
    assert not wrong, "\n".join(wrong)


def test_stems_are_unique():
    seen = {}
    for path in sources():
        if path.name == "README.md":
            continue
        other = seen.setdefault(path.stem, path.parent)
        assert other == path.parent, f"{path} and {other}/{path.stem}"


def cycles(graph):
    """Strongly connected groups of more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(" <-> ".join(sorted(group)))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def module_of(path):
    """X.c, X.h and X_private.h are one module: what the last holds is what X's files share and nobody else sees."""
    return pathlib.PurePath(path).stem.removesuffix("_private")


def test_there_is_no_include_cycle_even_by_module():
    graph = {}
    modules = {module_of(path) for path in sources()}
    for path in sources():
        deps = {module_of(name) for name in includes(path)} & modules
        graph.setdefault(module_of(path), set()).update(deps - {module_of(path)})
    assert cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == ["a <-> b"]
    found = cycles(graph)
    assert not found, "\n".join(found)


LIBRARY_HOMES = {
    "nghttp2/": lambda path: folder(path) == "proxy/net",
    "openssl/": lambda path: folder(path) == "proxy/net",
    "uv.h": lambda path: folder(path) == "proxy/net" or path.stem in UV_OWNERS,
}
# Files that own a libuv handle themselves; everything else goes through proxy/net.
UV_OWNERS = {"workers", "server", "admin", "listener", "resolver", "resolver_dns", "resolver_file", "zookeeper", "nacos"}


def test_libraries_are_included_only_where_they_live():
    wrong = [f"{path} includes <{name}>" for path in sources() for name in includes(path, "<")
             for prefix, home in LIBRARY_HOMES.items() if name.startswith(prefix) and not home(path)]
    assert not wrong, "\n".join(wrong)


def test_base_and_wire_do_no_input_or_output():
    banned = ("sys/socket.h", "netinet/", "arpa/", "uv.h", "nghttp2/")
    wrong = [f"{path} includes <{name}>" for path in sources() if folder(path) in ("proxy/wire",)
             for name in includes(path, "<") if name.startswith(banned)]
    assert not wrong, "\n".join(wrong)


def test_files_are_at_most_600_lines():
    wrong = [f"{path}: {n}" for path in sources() if (n := len((ROOT / path).read_text().splitlines())) > 600]
    assert not wrong, "\n".join(wrong)


def test_functions_are_at_most_100_lines():
    wrong = []
    for path in sources():
        start = None
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if line == "{":
                start = number
            elif line == "}" and start:
                if number - start > 100:
                    wrong.append(f"{path}:{start}: {number - start} lines")
                start = None
    assert not wrong, "\n".join(wrong)


def test_each_folder_says_what_lives_there():
    for name in FLOORS + ENDS + ["proxy", "conf", "docker", "tests"]:
        assert (ROOT / name / "README.md").exists(), name


def test_nothing_unfinished_is_marked():
    mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    wrong = [f"{path}:{number}" for path in sources()
             for number, line in enumerate((ROOT / path).read_text().splitlines(), 1) if mark.search(line)]
    assert not wrong, "\n".join(wrong)


TOP_LEVEL = {"proxy", "upstream", "downstream", "filters", "conf", "docker", "tests", "CMakeLists.txt", "README.md", "dev",
             "LICENSE", "CONTRIBUTING.md", "CHANGES.md"}


def test_the_top_level_holds_only_what_belongs_there():
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = {line.split("/")[0] for line in listing.stdout.splitlines()}
    assert {n for n in names if not n.startswith(".")} <= TOP_LEVEL


def test_code_is_formatted():
    files = [str(ROOT / path) for path in sources()]
    result = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if ": error:" in line})
    assert result.returncode == 0, "\n".join(wrong) + "\nrun: clang-format -i FILE"
