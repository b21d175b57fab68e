"""podman, with its images, containers, networks and temporary files in one directory."""

import json
import os
import resource
import shlex
import shutil
import subprocess

# Options of podman; the first runtime that can start a container here is used. runc starts containers where cgroups
# have two hierarchies, which crun does not.
RUNTIMES = ([], ["--runtime", "runc"])
# podman keeps its mounts for containers there, whatever its options say.
RUN_DIRECTORIES = ("/run/netns", "/run/crun", "/run/runc")


class Failed(Exception):
    """podman ended with an error."""


class Podman:
    def __init__(self, directory, cgroup):
        self._cgroup = cgroup
        self._environment = None
        self._command = [
            "podman",
            *("--log-level", "fatal"),
            *("--cgroup-manager", "cgroupfs"),
            *("--events-backend", "file"),
            *("--root", f"{directory}/storage"),
            *("--runroot", f"{directory}/run"),
            *("--tmpdir", f"{directory}/tmp"),
            *("--network-config-dir", f"{directory}/networks"),
        ]
        self._settings = f"{directory}/containers.conf"
        store = subprocess.run(
            ["podman", "--log-level", "fatal", "info", "--format", "{{.Store.GraphRoot}}"],
            capture_output=True,
            text=True,
        ).stdout.strip()
        # The images of this machine are read there without a copy.
        if store and os.path.isdir(store):
            self._command += ["--storage-opt", f"additionalimagestore={store}"]

    def try_runtimes(self, image):
        """Chooses a runtime that can start containers here; returns None, or the reason why none can."""
        for runtime in RUNTIMES:
            for limits in (None, self._own_limits()):
                self._environment = limits
                said = self(*runtime, "run", "--rm", "--network", "none", image, "true", check=False)
                if said.returncode == 0:
                    self._command += runtime
                    return None
        return f"podman cannot start containers here: {said.stderr.strip().splitlines()[-1:]}"

    def _own_limits(self):
        """Settings that keep podman from raising a limit above this process's own, which requires a capability."""
        limits = [
            f'"{name}={min(hard, soft)}:{hard}"'
            for name, (soft, hard) in (
                ("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)),
                ("nproc", resource.getrlimit(resource.RLIMIT_NPROC)),
            )
            if hard != resource.RLIM_INFINITY
        ]
        with open(self._settings, "w") as file:
            file.write(f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n")
        return {**os.environ, "CONTAINERS_CONF": self._settings}

    def __call__(self, *arguments, check=True, timeout=120):
        """Runs a command; returns the finished process with its output as text."""
        done = subprocess.run(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=self._environment,
        )
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-8:]
            raise Failed(f"podman {shlex.join(arguments)}: exit {done.returncode}\n" + "\n".join(said))
        return done

    def build(self, log, *arguments, timeout):
        """Builds an image, with the output in a file; returns whether it succeeded."""
        with open(log, "wb") as output:
            return not subprocess.run(
                [*self._command, "build", "--format", "docker", "--network", "host", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                env=self._environment,
            ).returncode

    def run(self, name, image, *arguments, options=()):
        """Starts a container, without systemd timers for health checks."""
        self(
            *("run", "--detach", "--name", name, "--cgroup-parent", self._cgroup),
            *("--health-interval", "disable", *options, image, *arguments),
        )

    def once(self, image, *arguments, options=()):
        """Runs a container until it exits and removes it; returns the finished process."""
        return self(
            *("run", "--rm", "--cgroup-parent", self._cgroup, "--network", "none"),
            *("--health-interval", "disable", *options, image, *arguments),
            check=False,
        )

    def directory_of_program(self):
        """A directory with a wrapper `podman`, for programs that call podman."""
        directory = f"{os.path.dirname(self._settings)}/bin"
        os.makedirs(directory, exist_ok=True)
        command = [shutil.which("podman"), *self._command[1:]]
        settings = (self._environment or {}).get("CONTAINERS_CONF")
        with open(f"{directory}/podman", "w") as file:
            file.write("#!/bin/sh\n")
            if settings:
                file.write(f"export CONTAINERS_CONF={shlex.quote(settings)}\n")
            file.write(f'exec {shlex.join(command)} "$@"\n')
        os.chmod(f"{directory}/podman", 0o755)
        return directory

    def inspect(self, kind, name):
        return json.loads(self(kind, "inspect", name).stdout)[0]

    def state(self, name):
        return self.inspect("container", name)["State"]

    def log(self, name):
        """The output of a container."""
        done = self("logs", name, check=False)
        return done.stdout + done.stderr
