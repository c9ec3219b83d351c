"""The container's root filesystem, started as a container would start it: in a chroot, read-only, as another user, without a shell.

No container engine is needed: docker/rootfs.sh, which the Dockerfile runs, makes the tree; a mount namespace makes it read-only. What
these tests cannot show (image layers, HEALTHCHECK being called) needs an engine. A machine where mount namespaces cannot be made skips
them by name.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from conftest import ROOT, ask, binary, find_free_port, wait_until_true

DOCKER = ROOT / "docker"
USER = 65532


def can_make_namespaces():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory):
    if not can_make_namespaces():
        message = "needs root and mount namespaces"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    if "libasan" in subprocess.run(["ldd", binary()], capture_output=True, text=True).stdout:
        pytest.skip("the image holds the release build")
    root = tmp_path_factory.mktemp("container") / "rootfs"
    subprocess.run([DOCKER / "rootfs.sh", binary(), root], check=True)
    return root


def inside(root, *arguments, env=None):
    """The command that runs the image's entry point as the image's user on a read-only root with an empty /tmp."""
    script = ('mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs none "$0/tmp" && '
              f'exec chroot --userspec={USER}:{USER} --groups= "$0" /usr/bin/tributary "$@"')
    assignments = [f"{name}={value}" for name, value in (env or {}).items()]
    return ["env", "-i", f"PATH={os.environ['PATH']}", *assignments, "unshare", "-m", "sh", "-c", script, str(root), *arguments]


class Container:
    def __init__(self, root, folder, **env):
        self.root, self.env = root, env
        self.log = folder / "container.log"
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(inside(root, *self.arguments(), env=env), stdout=log, stderr=log)

    def arguments(self):
        return ()

    def says(self, pattern):
        return wait_until_true(lambda: re.search(pattern, self.log.read_text()), f"{pattern!r} in {self.log.read_text()}")

    def stop(self):
        if self.popen.poll() is None:
            self.popen.terminate()
        return self.popen.wait(30)


@pytest.fixture
def container(rootfs, tmp_path):
    started = []

    def start(ini):
        (rootfs / "etc/tributary/tributary.ini").write_text(ini)
        started.append(Container(rootfs, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def image_ini(listen, probe, admin, provider):
    """The image's own file with other ports, so that two tests can run at once."""
    text = (DOCKER / "tributary.ini").read_text()
    return (text.replace("${TRIBUTARY_LISTEN:-0.0.0.0:17000}", listen).replace("0.0.0.0:17020", probe)
            .replace("127.0.0.1:17010", admin).replace("${TRIBUTARY_PROVIDER:-127.0.0.1:20000}", provider))


def local():
    return f"127.0.0.1:{find_free_port()}"


def memory_kib(pid, key):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{key}:\s+(\d+) kB", status, re.M).group(1))


def test_the_content_is_under_20_megabytes_and_has_no_shell(rootfs):
    size = sum(path.stat().st_size for path in rootfs.rglob("*") if path.is_file())
    assert size < 20_000_000
    names = {path.name for path in rootfs.rglob("*")}
    assert not names & {"sh", "bash", "busybox", "apt", "dpkg"}
    assert (rootfs / "etc/ssl/certs/ca-certificates.crt").exists()


def test_it_serves_calls_from_a_read_only_root_as_another_user(container, echo, tmp_path):
    provider = echo()
    listen, probe, admin = local(), local(), local()
    one = container(image_ini(listen, probe, admin, provider.target))
    one.says("probe on")
    wait_until_true(lambda: ask(probe, "/ready").status == 200, "ready")
    pid = one.popen.pid
    assert re.search(rf"^Uid:\s+{USER}\s+{USER}", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
    assert re.search(rf"{re.escape(str(one.root))} ro,", mounts) or re.search(r" / ro,", mounts)
    caller = pathlib.Path(os.environ.get("TRIBUTARY_BUILD", ROOT / "build/release")) / "tests/tools/echo-caller"
    subprocess.run([caller, "--target", listen, "--count", "100", "--concurrency", "10"], check=True, timeout=30)


def test_it_starts_in_under_6_megabytes(container, echo):
    provider = echo()
    one = container(image_ini(local(), local(), local(), provider.target))
    one.says("probe on")
    assert memory_kib(one.popen.pid, "VmRSS") < 6 * 1024


def test_the_binary_is_its_own_health_check(container, echo, rootfs):
    probe = local()
    one = container(image_ini(local(), probe, local(), echo().target))
    one.says("probe on")
    wait_until_true(lambda: ask(probe, "/ready").status == 200, "ready")
    for what in ("live", "ready"):
        asked = subprocess.run(inside(rootfs, "--probe", what), capture_output=True, timeout=30)
        assert asked.returncode == 0, asked
    one.stop()
    assert subprocess.run(inside(rootfs, "--probe", "live"), capture_output=True, timeout=30).returncode == 1


def test_term_stops_it_with_exit_code_0(container, echo):
    one = container(image_ini(local(), local(), local(), echo().target))
    one.says("probe on")
    assert one.stop() == 0


def test_a_taken_port_is_one_line_and_exit_code_2(container, echo):
    listen = local()
    first = container(image_ini(listen, local(), local(), echo().target))
    first.says("probe on")
    second = container(image_ini(listen, local(), local(), echo().target))
    assert second.popen.wait(20) == 2
    lines = [line for line in second.log.read_text().splitlines() if line]
    assert len(lines) == 1 and listen in lines[0] and "in use" in lines[0], lines


def test_the_images_own_configuration_is_valid(tmp_path):
    copy = tmp_path / "tributary.ini"
    shutil.copy(DOCKER / "tributary.ini", copy)
    subprocess.run([binary(), "-c", copy, "--check"], check=True, timeout=20)


def test_the_kubernetes_configuration_is_valid_with_a_pod_ip(tmp_path):
    file = DOCKER / "kubernetes/tributary.ini"
    subprocess.run([binary(), "-c", file, "--check"], check=True, timeout=20, env=dict(os.environ, POD_IP="127.0.0.2"))
    without = {name: value for name, value in os.environ.items() if name != "POD_IP"}
    asked = subprocess.run([binary(), "-c", file, "--check"], capture_output=True, text=True, timeout=20, env=without)
    assert asked.returncode == 1 and "POD_IP" in asked.stdout + asked.stderr


def documents(name):
    return list(yaml.safe_load_all((DOCKER / "kubernetes" / name).read_text()))


def test_the_manifests_agree_with_the_image_and_its_configuration():
    deployment, = documents("deployment.yaml")
    service, = documents("service.yaml")
    kustomization, = documents("kustomization.yaml")
    pod = deployment["spec"]["template"]
    sidecar, = pod["spec"]["initContainers"]
    ini = (DOCKER / "kubernetes/tributary.ini").read_text()
    ports = {port["name"]: port["containerPort"] for port in sidecar["ports"]}
    assert sidecar["restartPolicy"] == "Always"
    assert f":{ports['grpc']}" in ini and f"probe = 0.0.0.0:{ports['probe']}" in ini
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert sidecar[kind]["httpGet"]["port"] == "probe"
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["probe"])
    assert sidecar["securityContext"]["readOnlyRootFilesystem"] and sidecar["securityContext"]["runAsUser"] == USER
    drain = int(re.search(r"drain_timeout = (\d+)s", ini).group(1))
    assert drain < pod["spec"]["terminationGracePeriodSeconds"]
    mount, = sidecar["volumeMounts"]
    assert mount["mountPath"] == "/etc/tributary" and "subPath" not in mount
    volume, = pod["spec"]["volumes"]
    assert volume["configMap"]["name"] == kustomization["configMapGenerator"][0]["name"]
    assert set(kustomization["resources"]) == {"deployment.yaml", "service.yaml"}
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] in ports


@pytest.fixture(scope="module")
def validator():
    """kubernetes-validate from PyPI (it ships the schemas), in an environment of its own in the build folder."""
    folder = pathlib.Path(os.environ.get("TRIBUTARY_BUILD", ROOT / "build/release")) / "kubernetes-validate"
    program = folder / "bin/kubernetes-validate"
    if not program.exists():
        made = subprocess.run(f"python3 -m venv {folder} && {folder}/bin/pip -q install kubernetes-validate==1.37.0", shell=True,
                              capture_output=True, text=True, timeout=300)
        if made.returncode:
            message = f"kubernetes-validate cannot be installed: {made.stderr[-300:]}"
            pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return program


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_the_manifests_fit_the_kubernetes_schemas(validator, version):
    files = [DOCKER / "kubernetes/deployment.yaml", DOCKER / "kubernetes/service.yaml"]
    asked = subprocess.run([validator, "-k", version, "--strict", *files], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stdout + asked.stderr


def test_the_dockerfile_runs_the_tested_script_as_a_user_that_is_not_root():
    dockerfile = (DOCKER / "Dockerfile").read_text()
    assert "docker/rootfs.sh /build/tributary /rootfs" in dockerfile
    assert f"USER {USER}:{USER}" in dockerfile and "FROM scratch" in dockerfile
    assert '"/usr/bin/tributary", "--probe", "live"' in dockerfile
