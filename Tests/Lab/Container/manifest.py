"""The pod of deploy/kubernetes/spoolgate.yaml for podman, which supports pods but no StatefulSets."""

from images import SOURCE, name

try:
    import yaml
except ImportError:
    yaml = None

PATH = f"{SOURCE}/deploy/kubernetes/spoolgate.yaml"
POD = "spoolgate-0"
APPLICATION = "http://127.0.0.1:3000"


class Manifest:
    """The first pod of the StatefulSet, as in the manifest except for the values that a cluster fills in."""

    def __init__(self, origin, ports):
        with open(PATH) as file:
            documents = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(file)}
        stateful_set = documents["StatefulSet", "spoolgate"]["spec"]
        template = stateful_set["template"]
        self.pod = template["spec"]
        settings = [documents["ConfigMap", one] for one in ("spoolgate", "spoolgate-nginx")]
        settings[0]["data"].update(SPOOLGATE_UPSTREAM=APPLICATION, SPOOLGATE_ANONYMOUS="allow")
        settings[1]["data"].update(SPOOLGATE_ORIGIN=origin)
        for container in self.pod["containers"]:
            container["image"] = name(container["name"])
            for variable in container.get("env", []):
                self._fill(variable)
        for port in self.container("nginx")["ports"]:
            port["hostPort"] = ports[port["containerPort"]]
        self.pod["containers"].append({"name": "application", "image": name("application")})
        self._claims = []
        for volume in self.pod["volumes"]:
            # podman supports empty directories only since version 4.4.
            volume.pop("emptyDir")
            self._claim(volume, {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        for claim in stateful_set["volumeClaimTemplates"]:
            volume = {"name": claim["metadata"]["name"]}
            self._claim(volume, claim["spec"])
            self.pod["volumes"].append(volume)
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": self.pod}
        pod["metadata"] = {"name": POD, "labels": template["metadata"]["labels"]}
        self._text = yaml.safe_dump_all([*settings, *self._claims, pod])

    def container(self, wanted):
        return next(one for one in self.pod["containers"] if one["name"] == wanted)

    def write(self, path):
        with open(path, "w") as file:
            file.write(self._text)
        return path

    @property
    def volumes(self):
        return [one["metadata"]["name"] for one in self._claims]

    def _fill(self, variable):
        """Gives a variable its value in the first pod."""
        if "valueFrom" in variable:
            assert variable.pop("valueFrom")["fieldRef"]["fieldPath"].endswith("pod-index']")
            variable["value"] = "0"
        variable["value"] = variable["value"].replace("$(POD_INDEX)", "0")

    def _claim(self, volume, spec):
        claim = f"kubernetes-{volume['name']}"
        volume["persistentVolumeClaim"] = {"claimName": claim}
        self._claims.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": spec}
        )
