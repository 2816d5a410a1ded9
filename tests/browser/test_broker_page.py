"""Pages of the broker: exchanges, the routing graph, connections, users and tokens."""

import re
from urllib.parse import SplitResult, parse_qs, urlsplit

import pika
import pytest

pytest.importorskip("playwright.sync_api", reason="the page is looked at with playwright: pip install playwright")

from playwright.sync_api import expect

from tests.browser.conftest import SampleServer, Visits
from tests.browser.visitor import Visitor

pytestmark = pytest.mark.xdist_group("browser")


def test_an_exchange_is_declared_bound_published_through_and_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("exchanges")
    visitor.button("Declare an exchange").click()
    visitor.fill("Name", "news")
    page.get_by_label("Type").select_option("topic")
    visitor.button("Declare").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("news")
    visitor.button("Bind…").click()
    visitor.fill("Destination name", "shop.returns")
    visitor.fill("Routing key", "weather.*")
    visitor.button("Bind").click()
    expect(visitor.row("weather.*")).to_contain_text("shop.returns")
    expect(page.locator("dialog")).to_have_count(
        0
    )  # the page may poll the binding before the response to the request arrives
    page.get_by_label("Routing key").fill("weather.north")
    page.get_by_label("Payload").fill("rain")
    page.get_by_label("Headers").fill("region: north")
    visitor.button("Publish").click()
    visitor.notified("the message was routed")
    (message,) = sample.served.get("/api/holdfast/queues/%2F/shop.returns/messages")["messages"]
    assert message["payload"] == "rain"
    page.get_by_label("Routing key").fill("sport")
    visitor.button("Publish").click()
    visitor.notified("no queue matched")
    visitor.row("weather.*").get_by_role("button", name="Unbind…").click()
    visitor.button("Unbind").click()
    visitor.notified("Binding removed.")
    expect(page.locator(".empty").first).to_contain_text("No bindings")
    visitor.button("Delete…").click()
    visitor.fill("Type news to confirm", "news")
    visitor.button("Delete exchange").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    assert sample.served.ask("GET", "/api/exchanges/%2F/news", token=sample.token).status == 404


def test_the_default_exchange_publishes_and_cannot_be_deleted(visitor: Visitor) -> None:
    page = visitor.open("exchanges/%2F/amq.default")
    expect(page.locator("main")).to_contain_text("every queue, by its name")
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    page.get_by_label("Routing key").fill("shop.returns")
    visitor.button("Publish").click()
    visitor.notified("the message was routed")


def test_the_graph_shows_where_messages_go(visitor: Visitor) -> None:
    page = visitor.open("graph")
    nodes = page.locator(".graph .node")
    expect(nodes.filter(has_text="shop.orders")).to_have_attribute(
        "aria-label", re.compile(r"queue shop\.orders.*1 in")
    )
    names = ("exchange shop,", "exchange audit,", "queue audit.all,")
    boxes = [page.locator(f".node[aria-label^='{name}']").bounding_box() for name in names]
    left = [box["x"] for box in boxes if box is not None]
    assert left == sorted(left) and len(set(left)) == 3, "an exchange before its destinations, queues last"
    shop = page.get_by_role("link", name=re.compile("exchange shop,"))
    shop.focus()
    expect(page.locator(".edge.lit")).to_have_count(4)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".node:focus")).to_have_attribute("aria-label", re.compile("exchange (audit|billing)"))
    page.get_by_label("Filter by name").fill("audit")
    expect(nodes).to_have_count(3)
    page.get_by_label("Filter by name").fill("")
    page.get_by_label("Virtual host").select_option("staging")
    expect(page.locator(".graph")).to_contain_text("No bindings in this virtual host")
    page.get_by_label("Virtual host").select_option("/")
    page.get_by_role("link", name=re.compile(r"queue shop\.orders")).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("shop.orders")


def test_the_graph_asks_only_for_what_it_draws(visitor: Visitor) -> None:
    asked: list[SplitResult] = []
    visitor.page.on("request", lambda request: asked.append(urlsplit(request.url)))
    page = visitor.open("graph")
    expect(page.locator(".graph .node").first).to_be_visible()
    columns = {one.path: parse_qs(one.query).get("columns") for one in asked}
    assert columns["/api/queues/%2F"] == ["name,messages"]
    assert columns["/api/exchanges/%2F"] == ["name,type"]
    wanted = next(parse_qs(one.query) for one in asked if one.path == "/api/bindings/%2F")
    assert (wanted["name"], wanted["page_size"]) == (["^."], ["500"]), "without those of the default exchange"


def test_a_graph_of_very_many_bindings_says_that_it_shows_the_first(sample: SampleServer, visitor: Visitor) -> None:
    assert sample.served.ask("PUT", "/api/vhosts/crowded", {}).status == 201

    def crowd() -> None:
        host = sample.served.site.host("crowded")
        host.declare_exchange(
            "busy", "direct", durable=False, auto_delete=False, internal=False, arguments={}, passive=False
        )
        for name in ("one", "other"):
            host.declare_queue(
                name, durable=False, exclusive=False, auto_delete=False, arguments={}, passive=False, owner=None
            )
        for number in range(2001):
            host.bind("busy", "queue", "one", f"key {number:04}", {}, None)
        host.bind("busy", "queue", "other", "key", {}, None)

    sample.served.site.on_broker(crowd)
    try:
        page = visitor.open("graph?vhost=crowded")
        expect(page.get_by_role("status").filter(has_text="nodes")).to_have_text(
            "2 nodes, 1 edge (first 2,000 of 2,002 bindings)"
        )
    finally:
        assert sample.served.ask("DELETE", "/api/vhosts/crowded").status == 204


def test_fifty_nodes_and_a_cycle_of_exchanges_do_not_overlap(visitor: Visitor) -> None:
    page = visitor.open("graph")
    found = page.evaluate(
        """async () => {
            const { placed, NODE } = await import('/page/layers.js');
            const nodes = [], edges = [];
            for (let n = 0; n < 12; n += 1) nodes.push({ id: `e${n}`, kind: 'exchange' });
            for (let n = 0; n < 40; n += 1) nodes.push({ id: `q${n}`, kind: 'queue' });
            for (let n = 0; n < 12; n += 1) edges.push({ from: `e${n}`, to: `e${(n + 1) % 4}` });
            for (let n = 0; n < 40; n += 1) edges.push({ from: `e${n % 12}`, to: `q${n}` });
            const { places } = placed(nodes, edges);
            const all = [...places].filter(([id]) => !id.startsWith('pass')).map(([, at]) => at);
            let covered = 0;
            all.forEach((a, i) => all.forEach((b, j) => {
                if (i < j && Math.abs(a.x - b.x) < NODE.width && Math.abs(a.y - b.y) < NODE.height) covered += 1;
            }));
            return { count: all.length, covered };
        }"""
    )
    assert found == {"count": 52, "covered": 0}


def test_exchanges_and_channels_show_their_rates(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("exchanges")
    expect(visitor.row("shop").locator("td[data-label=In]")).to_have_text(re.compile("/s$"))
    expect(visitor.row("shop").locator("td[data-label=Out]")).to_have_text(re.compile("/s$"))
    visitor.open("connections")
    channels = page.get_by_role("region", name="Channels").locator("tbody tr")
    expect(channels.first.locator("td[data-label=Publish]")).to_have_text(re.compile("/s$"))
    name = page.get_by_role("region", name="Connections").locator("tbody tr").first.locator("th .nowrap")
    expect(name.last).to_have_text(re.compile(r"^-> 127.0.0.1:\d+$"))


def test_a_channel_is_closed_and_its_connection_stays_open(sample: SampleServer, visitor: Visitor) -> None:
    extra = sample.crowd.channel(0)
    page = visitor.open("connections")
    channels = page.get_by_role("region", name="Channels").locator("tbody tr")
    expect(channels).to_have_count(3)
    channels.filter(has_text="(2)").get_by_role("button", name="Close…").click()
    visitor.fill("Reason", "one too many")
    visitor.button("Close channel").click()
    visitor.notified("closed")
    expect(channels.filter(has_text="(2)")).to_contain_text("closing")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="one too many"):
        extra.queue_declare("", exclusive=True)
    expect(channels).to_have_count(2)
    assert len(sample.served.get("/api/connections")) == 2


def test_a_connection_is_closed_with_a_reason(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("connections")
    expect(page.get_by_role("region", name="Channels").locator("tbody tr")).to_have_count(2)
    page.get_by_label("Filter by name, user or host").fill("shop front")
    rows = page.get_by_role("region", name="Connections").locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.get_by_role("button", name="Close…").click()
    visitor.fill("Reason", "time to go")
    visitor.button("Close connection").click()
    visitor.notified("closed")
    assert "time to go" in sample.crowd.hear(1)
    expect(rows).to_have_count(0)
    assert [one["client_properties"]["connection_name"] for one in sample.served.get("/api/connections")] == ["worker"]


def test_a_user_is_added_edited_given_permissions_and_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("users")
    visitor.button("Add a user").click()
    for label, text in (("Name", "clerk"), ("Password", "first secret"), ("Tags", "management")):
        visitor.fill(label, text)
    visitor.button("Add user").click()
    row = page.get_by_role("region", name="Users").locator("tbody tr").filter(has_text="clerk")
    expect(row).to_contain_text("none: no access to any virtual host")
    row.get_by_role("button", name="Permissions…").click()
    page.get_by_label("Virtual host", exact=True).select_option("staging")
    visitor.fill("Configure", "")
    visitor.fill("Read", "clerk-.*")
    visitor.button("Save permissions").click()
    expect(row).to_contain_text("clerk-.*")
    assert sample.served.get("/api/permissions/staging/clerk") == {
        "user": "clerk",
        "vhost": "staging",
        "configure": "",
        "write": ".*",
        "read": "clerk-.*",
    }
    row.get_by_role("button", name="Edit…").click()
    visitor.fill("Tags", "management, monitoring")
    visitor.button("Save").click()
    expect(row).to_contain_text("monitoring")
    login = {"username": "clerk", "password": "first secret"}
    assert sample.served.ask("POST", "/api/holdfast/login", login).status == 200, "new tags must keep the password"
    row.get_by_role("button", name="Edit…").click()
    visitor.fill("New password", "second secret")
    visitor.button("Save").click()
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert sample.served.ask("POST", "/api/holdfast/login", login).status == 401
    row.get_by_role("button", name=re.compile("Revoke the permissions")).click()
    visitor.button("Revoke permissions").click()
    expect(row).to_contain_text("none: no access")
    row.get_by_role("button", name="Delete…").click()
    visitor.fill("Type clerk to confirm", "clerk")
    visitor.button("Delete user").click()
    expect(row).to_have_count(0)


def test_a_virtual_host_is_added_and_deleted(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("users")
    visitor.button("Add a virtual host").click()
    visitor.fill("Name", "lab")
    visitor.button("Add virtual host").click()
    hosts = page.get_by_role("region", name="Virtual hosts").locator("tbody tr").filter(has_text="lab")
    expect(hosts).to_have_count(1)
    hosts.get_by_role("button", name="Delete…").click()
    visitor.fill("Type lab to confirm", "lab")
    visitor.button("Delete virtual host").click()
    expect(hosts).to_have_count(0)
    assert "lab" not in [one["name"] for one in sample.served.get("/api/vhosts")]


def test_a_token_is_shown_once_works_and_is_revoked(sample: SampleServer, visitor: Visitor) -> None:
    page = visitor.open("users")
    visitor.button("Create a token").click()
    visitor.fill("Name", "reports")
    page.get_by_label("Lifetime").select_option("3600")
    visitor.button("Create token").click()
    secret = page.locator("dialog[open] .secret").inner_text()
    assert secret.startswith("hf_")
    assert sample.served.get("/api/holdfast/whoami", token=secret)["name"] == "guest"
    visitor.button("I have saved it").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert secret not in page.content()
    row = page.get_by_role("region", name="Tokens").locator("tbody tr").filter(has_text="reports")
    expect(row).to_contain_text(re.compile(r"in (1 h|5\d min)"))
    row.get_by_role("button", name="Revoke…").click()
    visitor.button("Revoke token").click()
    expect(row).to_have_count(0)
    assert sample.served.ask("GET", "/api/holdfast/whoami", token=secret).status == 401


def test_a_user_without_the_tag_administrator_sees_no_users(visits: Visits, sample: SampleServer) -> None:
    visitor = visits(None)
    page = visitor.page
    page.goto(sample.served.url)
    page.get_by_label("Name").fill("reader")
    page.get_by_label("Password").fill("reader")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
    visitor.open("users")
    expect(page.locator("main")).to_contain_text("visible to administrators only")
    expect(page.get_by_role("region", name="Tokens").first).to_be_visible()
    permit = {"configure": "shop", "write": "", "read": ".*"}
    assert sample.served.ask("PUT", "/api/permissions/%2F/reader", permit).status < 300
    visitor.open("exchanges/%2F/shop")
    expect(visitor.button("Delete…")).to_be_enabled()
    assert sample.served.ask("PUT", "/api/permissions/%2F/reader", {**permit, "configure": ""}).status < 300
    visitor.allow("401", "403")  # a missing permission must not end the session
    visitor.button("Delete…").click()
    visitor.fill("Type shop to confirm", "shop")
    visitor.button("Delete exchange").click()
    expect(page.locator(".toast.bad")).to_be_visible()
    visitor.open("queues/%2F/quiet")
    expect(visitor.button("Delete…")).to_be_disabled()
