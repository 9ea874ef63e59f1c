"""Uses the generated client as a user would: makes a link, follows it, reads its analytics, rotates a key."""

import sys
import time
import urllib.error
import urllib.request

import codes
import signpost_client
from signpost_client.exceptions import ForbiddenException, UnauthorizedException, UnprocessableEntityException

base_url, root_key = sys.argv[1:]


def client(key: str) -> signpost_client.ApiClient:
    configuration = signpost_client.Configuration(host=base_url, api_key={"ApiKey": key})
    return signpost_client.ApiClient(configuration)


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def follow(url: str) -> str:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay).open(url, timeout=5)
    except urllib.error.HTTPError as answer:
        assert answer.code == 302, answer.code
        return answer.headers["Location"]
    raise AssertionError("no redirect")


assert signpost_client.ServiceApi(client("")).get_health().status == "ok"

# A key for a client, made by the operator.
keys = signpost_client.APIKeysApi(client(root_key))
issued = keys.create_api_key(signpost_client.NewApiKey(name="generated", tier=signpost_client.Tier.FREE))
assert issued.key.startswith("sp_") and issued.webhook_secret.startswith("whsec_")
assert issued.expires_at is None and signpost_client.Scope.KEYS_COLON_MANAGE not in issued.scopes

# A link.
links = signpost_client.LinksApi(client(issued.key))
target = "https://example.com/summer?ref=mail"
made = links.create_shortlink_with_http_info(
    signpost_client.NewShortlink(redirect_url=target, data={"campaign": "summer"}, webhooks=["https://hooks.example.com/"])
)
headers = {name.lower(): value for name, value in made.headers.items()}
assert headers["x-usage-links-created"] == "1" and headers["x-usage-links-limit"] == "100"
link = made.data
assert link.redirect_url == target and link.short_url == f"{base_url}/{link.short_id}"
stored = links.get_shortlink(link.short_id)
assert stored.data == {"campaign": "summer"} and stored.webhooks == ["https://hooks.example.com/"] and stored.tracked
for image in signpost_client.ImageFormat:
    drawn = links.get_qr_code_with_http_info(link.short_id, format=image, scale=3)
    content_type = {name.lower(): value for name, value in drawn.headers.items()}["content-type"]
    assert codes.read(content_type, drawn.raw_data) == link.short_url, content_type

# Its hits.
assert follow(link.short_url) == target
analytics = signpost_client.AnalyticsApi(client(issued.key))
deadline = time.monotonic() + 10
while analytics.get_link_analytics_summary(link.short_id).total_hits == 0:
    assert time.monotonic() < deadline, "the hit was not counted"
    time.sleep(0.1)
full = analytics.get_link_analytics(link.short_id)
assert full.total_hits == full.last_7_days == 1 and len(full.daily) == 30 and full.daily[-1].count == 1
assert {device.label for device in full.devices} == {"desktop", "mobile", "tablet"}
by_hour = analytics.get_link_series(link.short_id, interval=signpost_client.Interval.HOUR, timezone="Asia/Kathmandu")
assert by_hour.total == sum(point.count for point in by_hour.points) == 1 and by_hour.timezone == "Asia/Kathmandu"
by_kind = analytics.get_link_breakdown(link.short_id, signpost_client.Dimension.BOT)
assert by_kind.total == 1 and [(of.label, of.count) for of in by_kind.labels] == [("tool", 1)], by_kind
assert analytics.get_series(bots=signpost_client.BotFilter.EXCLUDE).total == 0
of_all = analytics.get_breakdown(signpost_client.Dimension.DEVICE, bots=signpost_client.BotFilter.ONLY, limit=1)
assert of_all.total == 1 and of_all.labels[0].label == "desktop" and of_all.more == 0, of_all
usage = signpost_client.UsageApi(client(issued.key)).get_usage()
assert usage.api_key_id == issued.key_id and usage.usage.links_created.limit == 100
assert usage.usage.hits_served.limit is None
status = signpost_client.WebhooksApi(client(issued.key)).get_webhook_status(link.short_id)
assert status.webhooks[0].url == "https://hooks.example.com/"

# Errors are objects too.
try:
    signpost_client.APIKeysApi(client(issued.key)).list_api_keys()
    raise AssertionError("a key without the scope lists keys")
except ForbiddenException as error:
    assert error.data.scope == "keys:manage" and error.data.type.endswith(":scope-missing"), error.data
try:
    keys.rotate_api_key(issued.key_id, signpost_client.KeyRotation.model_construct(grace_seconds=-1))
    raise AssertionError("a negative grace is taken")
except UnprocessableEntityException as error:
    assert error.data.errors[0].pointer == "/grace_seconds", error.data

# A new secret for the key, by the key itself and without a body.
rotated = signpost_client.APIKeysApi(client(issued.key)).rotate_api_key(issued.key_id)
assert rotated.key != issued.key and rotated.key_id == issued.key_id and rotated.webhook_secret is None
assert signpost_client.UsageApi(client(rotated.key)).get_usage().usage.links_created.current == 1
try:
    signpost_client.UsageApi(client(issued.key)).get_usage()
    raise AssertionError("the old key still works")
except UnauthorizedException as error:
    assert error.data.type == "urn:problem-type:signpost:unauthorized"

listed = keys.list_api_keys(limit=100)
assert issued.key_id in [key.key_id for key in listed.api_keys] and listed.next_cursor is None
keys.revoke_api_key(issued.key_id)
assert issued.key_id not in [key.key_id for key in keys.list_api_keys().api_keys]

# A key that creates another one, and both are revoked at once.
scopes = [signpost_client.Scope.USAGE_COLON_READ, signpost_client.Scope.KEYS_COLON_MANAGE]
manager = keys.create_api_key(signpost_client.NewApiKey(name="manager", scopes=scopes))
child = signpost_client.APIKeysApi(client(manager.key)).create_api_key(signpost_client.NewApiKey(name="child"))
assert child.created_by == manager.key_id
keys.revoke_api_key(manager.key_id, descendants=signpost_client.Descendants.REVOKE)
assert not {manager.key_id, child.key_id} & {key.key_id for key in keys.list_api_keys().api_keys}
print("the generated client made a link, read its analytics and rotated a key")
