"""Each package is upgraded, removed and purged, in every nginx configuration of the documentation.

Each configuration is a separate nginx file, so that `nginx -t` can check each alone; nginx runs with all of them.
Each has its own copy of the package's location, as documented for another path: a copy stays when the package is
purged, and nginx must still start with it.
"""

import os
import re

import packages
from .upgrade import repack
from day import APPLICATION, MODULE, NODES, Scene

FOLDER = "/etc/nginx/drill"
WHOLE = "/root/whole"
SHARE = "/usr/share/spoolgate/nginx"
EXAMPLES = "/usr/share/doc/spoolgate/examples"
SITE = "/etc/nginx/sites-enabled/drill"
OLD = "/etc/nginx/snippets/old.conf"
PORT = 8100

# Configurations without their own server block.
WITHOUT_PORT = ("shared", "pool", "whole")
# A version above that of all other scenes.
NEW = "101.0"

# The file around a single site: like Debian's nginx.conf, but it includes only the needed files of conf.d.
ALONE = """user www-data;
pid /run/nginx-drill.pid;
include /etc/nginx/modules-enabled/*.conf;
events {{}}
http {{
    include /etc/nginx/conf.d/{names}.con[f];
    include {site};
}}
"""


def switched_on(text, mark):
    """A shipped file with the lines of a mark enabled, as its comments describe."""
    return re.sub(rf"(?m)^( *)#(.*# run: {mark}\b)", r"\1\2", text)


def recipe(name, kind):
    """A block of nginx configuration or settings from the documentation."""
    text = ""
    for page in ("RECIPES", "FRONTS", "OPERATIONS"):
        with open(os.path.join(packages.REPOSITORY, f"docs/{page}.md")) as file:
            text += file.read()
    return re.search(rf"<!-- block: {name} {kind} -->\n```\w*\n(.*?)```\n", text, re.DOTALL)[1]


def sites(day):
    """The content of server blocks by configuration, and that of the http block around them."""
    with open(os.path.join(packages.REPOSITORY, "nginx/snippets/spoolgate.conf")) as file:
        snippet = file.read()
    login = switched_on(snippet, "login")
    asking = switched_on(snippet, "auth")
    auth = day.machine.read(f"{EXAMPLES}/spoolgate_auth.conf")
    passing = f"    include {SHARE}/pass*.conf;\n"
    location = day.machine.read(f"{SHARE}/location.conf")
    admin = day.machine.read(f"{SHARE}/admin.conf")
    demo = day.machine.read(f"{SHARE}/demo.conf")
    origin = re.compile(r"    fastcgi_param SPOOLGATE_ORIGIN .*\n")
    routes = re.sub(r"(?m)^location (.|\n)*?^\}\n", "", snippet)
    return {
        "shipped": snippet,
        "login": login,
        "login-cors": login.replace('"Uploads"', "$spoolgate_realm"),
        "auth-request": asking + auth,
        "auth-request-cors": asking + switched_on(auth, "preflight"),
        "page": switched_on(snippet, "page"),
        "admin": switched_on(snippet, "admin"),
        "location-copied": snippet.replace(f"    include {SHARE}/location*.conf;\n", location),
        "admin-copied": snippet + admin,
        "page-copied": snippet + demo,
        "upstream": snippet.replace(passing, "    fastcgi_pass spoolgate;\n"),
        "socket": snippet.replace(passing, "    fastcgi_pass unix:/run/spoolgate/spoolgate.sock;\n"),
        "nodes": snippet.replace(
            passing, "    fastcgi_pass $spoolgate_node;\n    fastcgi_next_upstream error timeout;\n"
        ),
        "routes": recipe("routes", "nginx") + routes,
        "proxy": origin.sub(lambda _: recipe("behind", "nginx"), snippet),
        "directory": recipe("directory", "nginx"),
        "php": "include snippets/spoolgate*.conf;\n",
    }


def write(day):
    """Writes all configurations; returns the names of those that `nginx -t` checks alone, with its options."""
    options = {}
    for number, (name, text) in enumerate(sites(day).items()):
        listen = f"    listen 127.0.0.1:{PORT + number};\n    server_name {name}.example;\n"
        site = f"server {{\n{listen}{text}}}\n"
        if name == "php":
            site += recipe("php", "nginx").replace("3000", "3999")
        day.machine.write(f"{FOLDER}/{name}.site", site)
        names = "spoolgate*" if name == "nodes" else "spoolgate"
        alone = ALONE.format(names=names, site=f"{FOLDER}/{name}.site")
        # Relative includes are resolved next to the main file.
        day.machine.write(f"/etc/nginx/drill-{name}.conf", alone)
        options[name] = f"-c /etc/nginx/drill-{name}.conf"
    # The upstream and map of several nodes with one spool; they use other names than the nodes' file.
    shared = recipe("shared", "nginx").replace("spoolgate_any", "spoolgate_shared")
    day.machine.write(f"{FOLDER}/shared.site", shared)
    alone = ALONE.format(names="spoolgate", site=f"{FOLDER}/shared.site")
    day.machine.write("/etc/nginx/drill-shared.conf", alone)
    options["shared"] = "-c /etc/nginx/drill-shared.conf"
    # The number of threads that write, as on the module's page.
    day.machine.write("/etc/nginx/drill-pool.conf", "thread_pool spool_receive threads=32;\n" + day.machine.read(
        "/etc/nginx/drill-shipped.conf"
    ))
    options["pool"] = "-c /etc/nginx/drill-pool.conf"
    day.machine.quietly(f"cp {EXAMPLES}/spoolgate_nodes.conf {NODES}; mkdir -p {WHOLE}/log {WHOLE}/snippets")
    # A complete nginx configuration of the operator's own.
    whole = re.sub(r"(?m)^.*\[::\]:.*\n", "", day.machine.read(f"{EXAMPLES}/nginx.conf"))
    whole = re.sub(r"/etc/ssl/\S+;", "/etc/nginx/uploads.pem;", whole)
    day.machine.write("/etc/nginx/drill-whole.conf", whole)
    options["whole"] = f"-p {WHOLE} -c /etc/nginx/drill-whole.conf"
    day.machine.write(SITE, f"include {FOLDER}/*.site;\n")
    return options


def judge(day, options, when):
    """Checks that nginx accepts each configuration alone, and starts with all of them."""
    day.transcript.command(f"for each of {len(options)} configurations: nginx -t -c FILE")
    wrong = {}
    for name, option in options.items():
        result = day.machine.quietly(f"nginx -t {option}")
        if not result.ok:
            wrong[name] = next((l for l in result.output.splitlines() if "emerg" in l), result.output)
    day.check(
        not wrong,
        f"nginx accepts each of {len(options)} configurations, {when}",
        "\n".join(f"{name}: {said}" for name, said in wrong.items()),
    )
    # The next restart may come within seconds, and systemd allows five in ten seconds.
    day.machine.quietly("systemctl reset-failed nginx")
    day.must("nginx -t && systemctl restart nginx", f"nginx restarts with all of them, {when}")
    answers = day.value(
        f"for port in $(seq {PORT} {PORT + len(options) - len(WITHOUT_PORT) - 1}); do "
        "curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:$port/; done | sort | uniq -c"
    )
    day.check(answers and " 000" not in answers, f"and each site responds, {when}", answers)


def lane(day, wants_module, word=""):
    """Checks that nginx writes content itself if the shipped module is loaded, and that uploads work in any case."""
    before = received(day)
    name = f"lane-{wants_module}{word}.bin".lower()
    day.check_answered(day.send(name, 3_000_000), 201, "an upload succeeds", name)
    how = "by itself" if wants_module else "through the gateway"
    day.check((received(day) > before) == wants_module, f"and nginx has sent it {how}")


def received(day):
    """The bytes that nginx has written into the spool itself."""
    port = PORT + list(sites(day)).index("admin")
    command = f"curl -s http://127.0.0.1:{port}/-/spoolgate/metrics"
    found = re.search(r"spoolgate_spool_receive_bytes_total\S* (\d+)", day.value(command))
    return int(found[1]) if found else 0


def remove_each(day):
    day.install_packages("the packages are installed")
    day.edit_settings(routes__default__upstream=APPLICATION, routes__default__anonymous="allow")
    day.must("systemctl enable -q --now spoolgate && systemctl reload spoolgate", "the service starts")
    options = write(day)
    judge(day, options, "with all packages")
    lane(day, True)
    # No file of it is removed by a purge.
    day.apt("remove -y spoolgate-client", "the client's package: remove")
    judge(day, options, "after remove of the client")
    # A file that nginx does not include.
    day.machine.write(OLD, "spool_receive on;\n")
    for step in ("remove", "purge"):
        result = day.apt(f"{step} -y {MODULE}", f"the module's package: {step}")
        if step == "remove":
            day.check(f"in {OLD}: remove these lines" in result.output, "it names a file that needs the module")
        judge(day, options, f"after {step} of the module")
    day.machine.quietly(f"rm {OLD}")
    lane(day, False)
    day.install_packages("the packages are installed again")
    judge(day, options, "with all packages again")
    for name in ("spoolgate", MODULE):
        repack(day, NEW, name)
        day.apt(f"install -y ./{name}_{NEW}_amd64.deb </dev/null", f"{name}: upgrade, without a prompt")
        judge(day, options, f"after the upgrade of {name}")
    lane(day, True, "upgraded")
    for step in ("remove", "purge"):
        day.apt(f"{step} -y spoolgate", f"the gateway's package: {step}")
        judge(day, options, f"after {step} of the gateway")
    day.apt(f"remove -y {MODULE}", "the module's package, after the gateway's: remove")
    judge(day, options, "without gateway and module")


def purge_all(day):
    day.install_packages("the packages are installed")
    options = write(day)
    result = day.apt(f"purge -y spoolgate spoolgate-client {MODULE}", "all packages: purge")
    day.check("kept /etc/nginx/conf.d/spoolgate.conf" in result.output, "it names the file that stays for nginx")
    judge(day, options, "after a purge of everything at once")
    day.must("test -s /etc/nginx/conf.d/spoolgate.conf", "the names exist")
    day.must(f"rm -r {SITE} {FOLDER} {NODES} /etc/nginx/drill-*", "the operator removes them")
    day.must("rm /etc/nginx/conf.d/spoolgate.conf", "and then the names")
    day.must("nginx -t && systemctl restart nginx", "nginx still runs")


SCENES = [
    Scene("Remove each package, in every configuration", remove_each),
    Scene("Purge all at once, in every configuration", purge_all),
]
