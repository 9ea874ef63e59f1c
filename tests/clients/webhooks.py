"""Has a server send deliveries to a receiver here, and holds what checks signatures against them and against forgeries."""

import base64
import dataclasses
import datetime
import hashlib
import hmac
import http.client
import http.server
import json
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.parse

import page
import standardwebhooks

base_url, root_key, work, rust = sys.argv[1:]

# Seconds from a click to its delivery; it takes milliseconds.
SOON = 10
# Seconds that a request may be old, and room for the time that all this takes.
TOLERANCE, ROOM = 300, 60


@dataclasses.dataclass(frozen=True)
class Request:
    """What a receiver gets, and whether it is to be believed with `secret`."""

    said: str
    genuine: bool
    secret: str
    headers: dict[str, str]
    body: bytes

    def but(self, said: str, genuine: bool, secret: str = "", body: bytes = b"", **headers: str) -> "Request":
        changed = {f"webhook-{name}": value for name, value in headers.items()}
        return Request(said, genuine, secret or self.secret, self.headers | changed, body or self.body)

    def __getitem__(self, name: str) -> str:
        return self.headers[f"webhook-{name}"]


# The receiver. Its first answer is a failure, so that the delivery comes again.
received: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
answers = [500]


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        received.put(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(answers.pop() if answers else 204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
receiver.daemon_threads = True
threading.Thread(target=receiver.serve_forever, daemon=True).start()


def call(method: str, path: str, key: str = "", body: object = None) -> tuple[int, bytes]:
    server = http.client.HTTPConnection(urllib.parse.urlsplit(base_url).netloc, timeout=SOON)
    headers = {"X-API-Key": key} if key else {}
    server.request(method, path, None if body is None else json.dumps(body, ensure_ascii=False).encode(), headers)
    answer = server.getresponse()
    result = answer.status, answer.read()
    server.close()
    return result


def post(path: str, key: str, body: object) -> dict:
    status, answer = call("POST", path, key, body)
    assert status in (200, 201), (path, status, answer)
    return json.loads(answer)


def delivery(said: str, secret: str) -> Request:
    headers, body = received.get(timeout=SOON)
    return Request(said, True, secret, headers, body)


key = post("/api-keys", root_key, {"name": "webhooks", "tier": "Free"})
old = key["webhook_secret"]
hook = f"http://127.0.0.1:{receiver.server_port}/hits"
target = "https://example.com/größe?a=1&b=2"
data = {"name": "Größe 😀", "price": 1.50, "nested": {"empty": [], "quote": '"\\/'}}
link = post("/shorten", key["key"], {"redirect_url": target, "data": data, "webhooks": [hook]})


def click() -> None:
    status, _ = call("GET", f"/{link['short_id']}")
    assert status == 302, status


click()
first = delivery("a delivery", old)
again = delivery("its second try", old)
rotation = {"grace_seconds": 3600, "rotate_webhook_secret": True}
new = post(f"/api-keys/{key['key_id']}/rotate", root_key, rotation)["webhook_secret"]
click()
grace = delivery("a delivery in a rotation's grace, by the old secret", old)
assert received.empty(), "more deliveries than clicks"

assert json.loads(first.body)["data"] == data and not first.body.isascii()
assert again.body == first.body and again["id"] == first["id"] != grace["id"], "a repeat is told by its id"
assert len(first["signature"].split()) == 1 and len(grace["signature"].split()) == 2


def signed(said: str, genuine: bool, seconds: int) -> Request:
    """The first delivery as it were if it had been sent at another time, signed by the library."""
    at = datetime.datetime.fromtimestamp(int(time.time()) + seconds, datetime.timezone.utc)
    signature = standardwebhooks.Webhook(old).sign(first["id"], at, first.body.decode())
    return first.but(said, genuine, timestamp=str(int(at.timestamp())), signature=signature)


signature = first["signature"]
none = {name: value for name, value in first.headers.items() if not name.startswith("webhook-")}
requests = [
    first,
    again,
    grace,
    grace.but("the same by the new secret", True, new),
    first.but("signatures of other versions beside ours", True, signature=f"v2,AAAA {signature} v1a,AAAA"),
    signed("four minutes old", True, ROOM - TOLERANCE),
    signed("six minutes old", False, -TOLERANCE - ROOM),
    signed("six minutes ahead", False, TOLERANCE + ROOM),
    first.but("the wrong secret", False, new),
    first.but("one byte of the body changed", False, body=first.body.replace(b"example.com", b"example.org")),
    first.but("the body parsed and printed again", False, body=json.dumps(json.loads(first.body)).encode()),
    first.but("the time changed", False, timestamp=str(int(first["timestamp"]) + 1)),
    first.but("the time no number", False, timestamp="now"),
    first.but("the id of another", False, id=grace["id"]),
    first.but("the signature of another", False, signature=grace["signature"]),
    first.but("the signature called another version's", False, signature=signature.replace("v1,", "v1a,")),
    first.but("the signature without its version", False, signature=signature.removeprefix("v1,")),
    first.but("the signature cut short", False, signature=signature[:-5]),
    first.but("the signature empty", False, signature=""),
    first.but("the signature no base64", False, signature="v1,größe"),
    Request("no signature", False, old, none, first.body),
]


def by_library(secret: str, headers: dict[str, str], body: bytes) -> bool:
    try:
        standardwebhooks.Webhook(secret).verify(body, headers)
        return True
    except Exception:
        return False


def by_function(is_genuine, request: Request) -> bool:
    message = http.client.HTTPMessage()
    for name, value in request.headers.items():
        message[name.title()] = value
    return is_genuine(request.secret, message, request.body)


def judged_by(program: list[str]) -> dict[str, list[bool]]:
    asked = [
        {"secret": request.secret, "headers": request.headers, "body": base64.b64encode(request.body).decode()}
        for request in requests
    ]
    done = subprocess.run(program, input=json.dumps(asked).encode(), stdout=subprocess.PIPE, timeout=30, check=True)
    return json.loads(done.stdout)


# The function that the API reference prints.
document = json.loads(pathlib.Path(work, "openapi.json").read_text())
described = document["components"]["pathItems"]["Hit"]["post"]["description"]
(block,) = re.findall(r"```python\n(.*?)```", described, re.DOTALL)
reference: dict = {}
exec(block, reference)

judgements = {
    "page's python": [by_function(page.is_genuine, request) for request in requests],
    "the reference's python": [by_function(reference["is_genuine"], request) for request in requests],
    "standardwebhooks from PyPI": [by_library(request.secret, request.headers, request.body) for request in requests],
    **judged_by(["node", f"{work}/webhooks.mjs"]),
    **judged_by([rust]),
}
wrong = [
    f"{judge} {'takes' if judged else 'refuses'}: {request.said}"
    for judge, judged_all in judgements.items()
    for request, judged in zip(requests, judged_all, strict=True)
    if judged is not request.genuine
]

# The simple signature is what the contract says.
for request, secret in [(first, old), (grace, new)]:
    digest = hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
    if request.headers["x-webhook-signature"] != f"sha256={digest}":
        wrong.append(f"X-Webhook-Signature of {request.said} is another one")

if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(requests)} requests, judged rightly by {', '.join(judgements)}")
