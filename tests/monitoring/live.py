"""Asks a real Prometheus for every expression of the dashboards and alerts: `live.py BASE_URL ROOT_KEY ADMIN PID DIRECTORY`."""

import http.server
import json
import math
import pathlib
import re
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import codes

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE, ROOT_KEY, ADMIN, PID, DIRECTORY = sys.argv[1:]
# As long as the load goes on before anything is asked: some of the scrapes that a rate is taken over.
WARM = 12
SCRAPE = 1
RATE = "10s"

# Whose comparison holds under the fault that is made here. Of the others the left side is asked; that they fire in time is
# tested by promtool.
FIRES = {"SignpostHitsNotRecorded", "SignpostStoreOutOfReach", "SignpostErrorBudgetBurnsFast", "SignpostErrorBudgetBurnsSlowly"}


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes every third delivery at once, and refuses the others."""

    taken = 0

    def do_POST(self):
        Receiver.taken += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if Receiver.taken % 3 == 0 else 500)
        self.end_headers()

    def log_message(self, *_):
        pass


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


opener = urllib.request.build_opener(Stay)


def call(method, path, key=None, body=None):
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if key:
        headers["X-API-Key"] = key
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(BASE + path, data=data, headers=headers, method=method)
    try:
        with opener.open(request, timeout=20) as answer:
            status, kind, content = answer.status, answer.headers.get("Content-Type", ""), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    if kind.startswith("image/"):
        assert codes.read(kind, content) == BASE + path.removesuffix("/qr"), path
    return status, content


def expect(status, answer):
    if answer[0] != status:
        sys.exit(f"{answer[0]} instead of {status}: {answer[1][:300]}")
    return json.loads(answer[1]) if answer[1] else None


class Load(threading.Thread):
    """A bit of everything, again and again."""

    def __init__(self, receiver):
        super().__init__(daemon=True)
        body = {"redirect_url": "https://example.com/", "webhooks": [f"http://127.0.0.1:{receiver}/"]}
        self.link = expect(200, call("POST", "/shorten", ROOT_KEY, body))["short_id"]
        self.plain = expect(200, call("POST", "/shorten", ROOT_KEY, {"redirect_url": "https://example.com/"}))["short_id"]
        self.free = expect(201, call("POST", "/api-keys", ROOT_KEY, {"name": "free", "tier": "Free"}))["key"]
        self.goes_on = True
        self.error = None

    def run(self):
        try:
            self.ask_for_everything()
        except Exception as error:
            self.error = error

    def ask_for_everything(self):
        while self.goes_on:
            # So that the journal soon needs a new segment.
            for _ in range(20):
                call("GET", f"/{self.plain}")
            for path in (f"/{self.link}", "/zzzzzzz", f"/{self.link}/qr", "/", "/nowhere/at/all"):
                call("GET", path)
            for path in (f"/links/{self.link}/analytics", f"/links/{self.link}", "/usage", f"/{self.link}/webhooks/status"):
                call("GET", path, ROOT_KEY)
            call("POST", "/shorten", ROOT_KEY, {"redirect_url": "https://example.com/"})
            call("POST", "/shorten", self.free, {"redirect_url": "https://example.com/"})
            call("GET", "/usage", "no such key")
            time.sleep(0.02)


class Prometheus:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        directory = pathlib.Path(DIRECTORY)
        config = directory / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {SCRAPE}s, evaluation_interval: {SCRAPE}s}}\n"
            f"rule_files: [{ROOT}/grafana/alerts/signpost.yaml]\n"
            f"scrape_configs:\n  - job_name: signpost\n    static_configs: [{{targets: ['{ADMIN}']}}]\n"
        )
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/tsdb"]
        self.log = open(directory / "prometheus.log", "w")
        self.process = subprocess.Popen([*command, f"--web.listen-address={self.address}"], stderr=self.log)

    def get(self, path, **query):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{path} {query}: {json.load(error)['error']}")

    def has_data(self, expression):
        found = self.get("query", query=expression)["result"]
        return any(math.isfinite(float(series["value"][1])) for series in found)

    def wait_for(self, what, is_so, patience):
        end = time.monotonic() + patience
        while not (missing := [name for name in what if not is_so(name)]) == []:
            if time.monotonic() > end:
                return missing
            time.sleep(0.5)
        return []


def dashboard_expressions():
    for file in sorted((ROOT / "grafana/dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        targets = [(panel["title"], target) for panel in board["panels"] for target in panel.get("targets", [])]
        for number, (title, target) in enumerate(targets):
            yield f"{file.stem} {number}: {title}", target["expr"]
        for annotation in board["templating"]["list"]:
            if annotation["type"] == "query":
                selector = re.fullmatch(r"label_values\((.*), \w+\)", annotation["definition"])[1]
                yield f"{file.stem}: variable {annotation['name']}", selector
        for annotation in board["annotations"]["list"]:
            # They return something when something was restarted.
            yield f"{file.stem}: annotation {annotation['name']}", annotation["expr"].removesuffix(" > 0")


def filled_in(expression):
    for name, value in {"$job": ".+", "$instance": ".+", "$__rate_interval": RATE, "$__range": "1m"}.items():
        expression = expression.replace(name, value)
    return expression


def alert_sides(rules):
    """What each alert compares, by the alert's name."""
    for rule in rules:
        if rule["type"] == "alerting":
            for number, side in enumerate(re.split(r"\s+(?:and|or)\s+", rule["query"])):
                yield f"{rule['name']} {number}", re.sub(r"\s*(>|==)\s*[\d.* ]+$", "", side)


def main():
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    load = Load(receiver.server_address[1])
    load.start()
    prometheus = Prometheus()
    try:
        check(prometheus)
    finally:
        load.goes_on = False
        load.join()
        if load.error:
            print(f"the load ended: {load.error}")
        prometheus.process.terminate()
        prometheus.process.wait()
    if load.error:
        sys.exit(1)


def check(prometheus):
    time.sleep(WARM)
    expressions = {name: filled_in(expression) for name, expression in dashboard_expressions()}
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    names = {rule["name"] for rule in rules}
    if not FIRES < names or len(expressions) < 40:
        sys.exit(f"dashboards or alerts are somewhere else: {sorted(names)}, {len(expressions)} expressions")
    expressions |= dict(alert_sides(rules))
    silent = prometheus.wait_for(expressions, lambda name: prometheus.has_data(expressions[name]), patience=30)
    if silent:
        sys.exit("no data under load:\n" + "\n".join(f"  {name}: {expressions[name]}" for name in silent))
    now = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    if firing := [rule["name"] for rule in now if rule.get("alerts")]:
        sys.exit(f"nothing is wrong, and yet: {firing}")
    print(f"{len(expressions)} expressions return data")

    # No file may grow beyond one page from here on: the store can't write, and the journal makes no segment.
    resource.prlimit(int(PID), resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    queries = {rule["name"]: rule["query"] for rule in rules}
    silent = prometheus.wait_for(FIRES, lambda name: prometheus.has_data(queries[name]), patience=60)
    if silent:
        sys.exit("no data under a fault:\n" + "\n".join(f"  {name}: {queries[name]}" for name in silent))
    print(f"under a fault, so do {', '.join(sorted(FIRES))}")
    unhealthy = [rule["name"] for group in prometheus.get("rules")["groups"] for rule in group["rules"] if rule["health"] != "ok"]
    if unhealthy:
        sys.exit(f"rules that can't be evaluated: {unhealthy}")


main()
