"""Valid values of what a JSON schema can't say whole: public URLs, times to come, colours apart, cursors of this service."""

import datetime
import itertools
import string

import codes
import schemathesis
from hypothesis import strategies as st

LABEL = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
PATH = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:@/%", max_size=40).map(
    # A percent sign that starts no escape is fine for browsers, but is no URI.
    lambda path: path.replace("%", "%25")
)
URL = st.builds(
    "{}://{}.{}{}/{}".format,
    st.sampled_from(["http", "https", "HTTP", "hTTps"]),
    LABEL,
    st.sampled_from(["example.com", "example.org", "example"]),
    st.sampled_from(["", ":80", ":8443", ":65535"]),
    PATH,
)
schemathesis.openapi.format("uri", URL)

# Most times that are sent are ends, of keys and of links.
FUTURE = st.datetimes(datetime.datetime(2100, 1, 1), datetime.datetime(9998, 12, 31))
schemathesis.openapi.format("date-time", FUTURE.map(lambda time: time.isoformat(timespec="milliseconds") + "Z"))


# As in `src/domain/reserved.rs`, as far as they have the form of a name.
RESERVED = """api-keys docs links shorten usage admin analytics api assets console exports favicon health hits imports login
metrics robots sitemap static well-known""".split()


def is_public(url: str) -> bool:
    """Whether a webhook may have this URL, as far as it can be told without a look-up: its host is no number."""
    host = url.split("://", 1)[-1].split("/", 1)[0].split("?", 1)[0].rsplit(":", 1)[0]
    return any(letter not in string.hexdigits + ".xX" for letter in host)


@schemathesis.hook
def filter_case(context, case) -> bool:
    """Leaves out requests that are as the document's schemas say, but not as its words do."""
    body = case.body if isinstance(case.body, dict) else {}
    if case.meta is not None and case.meta.generation.mode.is_negative:
        return True
    if case.operation.path in ("/api-keys", "/api-keys/{key_id}"):
        ends_some_day = not isinstance(body.get("expires_at"), str) or body["expires_at"] > "2100"
        # White space alone is no name; and to Python, `$` stands before a last line break too.
        name = str(body.get("name") or "x")
        return ends_some_day and not name.isspace() and not name.endswith("\n")
    if case.operation.path in ("/shorten", "/links/{short_id}"):
        begin, end = body.get("not_before"), body.get("expires_at")
        ends_later = not isinstance(end, str) or (end > "2100" and not (isinstance(begin, str) and begin >= end))
        tags = [str(tag) for tag in body.get("tags") or []]
        # `$` stands before a last line break too.
        are_tags = len({tag.lower() for tag in tags}) == len(tags) and not any(tag.endswith("\n") for tag in tags)
        is_name = not any(str(name).lower() in RESERVED for name in [body.get("slug"), case.path_parameters.get("short_id")])
        # Links to this very service are refused too.
        urls = [body.get("redirect_url") or "", body.get("fallback_url") or "", *(body.get("webhooks") or [])]
        return ends_later and are_tags and is_name and all(is_public(url) for url in urls)
    return True


NUMBERS = itertools.count()
ZONES = ["UTC", "Europe/Berlin", "america/st_johns", "Asia/Kathmandu", "Pacific/Kiritimati"]


def day(before: int) -> str:
    """The date so many days ago, in UTC."""
    return (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=before)).strftime("%Y-%m-%d")


@schemathesis.hook
def before_call(context, case, kwargs) -> None:
    """Gives each request an `Idempotency-Key` of its own: with one that was sent with another body it is refused.

    Of the texts that may be times and time zones, nearly none is one: most requests for analytics get one that is.
    """
    if case.meta is not None and case.meta.generation.mode.is_negative:
        return
    number = next(NUMBERS)
    if "Idempotency-Key" in (case.headers or {}):
        case.headers["Idempotency-Key"] = f"request-{number}"
    if case.operation.path.endswith(("/series", "/breakdown")) and number % 8:
        valid = {"from": day(1 + number % 30), "until": day(0), "timezone": ZONES[number % len(ZONES)]}
        for name in valid.keys() & (case.query or {}).keys():
            case.query[name] = valid[name]


@schemathesis.check
def problem_is_documented(context, response, case) -> None:
    """An error is one of those that its operation lists, which the examples of the answer are named after."""
    if response.status_code < 400 or response.status_code == 405:
        return
    problem = response.json()
    slug = problem["type"].removeprefix("urn:problem-type:signpost:")
    described = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    known = described.get("content", {}).get("application/problem+json", {}).get("examples", {})
    assert slug in known, f"{slug} is not listed for {response.status_code}"
    assert (slug == "validation") == ("errors" in problem), problem


@schemathesis.check
def image_reads_back(context, response, case) -> None:
    """An image is the code of the link that was asked for."""
    is_image = case.operation.definition.raw["operationId"] == "getQrCode" and response.status_code == 200
    if is_image and case.method == "GET":
        [content_type] = response.headers["content-type"]
        said = codes.read(content_type, response.content)
        assert said.startswith("http") and said.endswith(f"/{case.path_parameters['short_id']}"), said
