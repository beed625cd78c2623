"""An application that uses every public name, for a strict type checker; nothing of it is run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter, Depends, FastAPI, Request
from pymongo import AsyncMongoClient
from pymongo.database import Database
from starlette.applications import Starlette

from quaestor import (
    Access,
    Action,
    AdminApi,
    AdminToken,
    CdnAdapter,
    CdnError,
    ChannelFeeds,
    ChannelResults,
    CollectionAccess,
    ConfigurationError,
    ContinuousResults,
    Dashboard,
    DatabaseError,
    DeliveryChanged,
    DeliveryMode,
    DependencyError,
    EventLayerError,
    FailureSeen,
    Grant,
    HttpLiveQuery,
    InvalidationDone,
    Level,
    LifetimeEstimator,
    Limits,
    Live,
    LiveClient,
    LiveEvent,
    LiveGap,
    LiveQueries,
    LiveResult,
    MalformedQueryError,
    Now,
    Operation,
    Principal,
    Quaestor,
    QuaestorError,
    QuaestorRouter,
    QuaestorSyncTransport,
    QuaestorTransport,
    Query,
    QueryError,
    ReadAnswered,
    Representation,
    ResultEvent,
    Resumed,
    Resynchronized,
    Rule,
    Settings,
    SketchError,
    SocketLimits,
    Stalled,
    Step,
    StoreError,
    SubscriptionError,
    SyncLiveClient,
    UnsupportedQueryError,
    Whole,
    Write,
    cache_policy,
    cached,
    cookie,
    header,
    per_role,
    per_user,
    private,
    public,
    replay,
    resolve,
    resolve_sync,
    uncacheable,
    writes,
)
from quaestor.cdn_adapters import (
    CACHES,
    HOSTED,
    Accepted,
    Akamai,
    Answer,
    AzureFrontDoor,
    BatchLimits,
    Bunny,
    Capabilities,
    Cloudflare,
    CloudFront,
    Connection,
    Cost,
    Delivered,
    Delivery,
    FanOut,
    Fastly,
    GoogleCloudCdn,
    KeyCdn,
    LifetimeField,
    MemoryAdapter,
    MemoryCdn,
    Netlify,
    Nginx,
    Outcome,
    Owner,
    Pace,
    Place,
    PurgeEvent,
    Rate,
    Rejected,
    Souin,
    Squid,
    TagField,
    Target,
    Throttled,
    Tiers,
    TrafficServer,
    Unit,
    VarnishAdapter,
    Vercel,
    Webhook,
    provider_configuration,
    varnish_vcl,
)
from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import BrokerDelivery, DeliveryParts
from quaestor.channels.brokers.registry import Brokers
from quaestor.channels.brokers.serving import ServedResults
from quaestor.channels.brokers.wire import decoded
from quaestor.channels.datasets import Dataset, Position, dataset_names
from quaestor.channels.feeds.definitions import Feeds
from quaestor.channels.feeds.service import FeedParts, FeedService
from quaestor.channels.hosting import executors_of
from quaestor.channels.hosting import hosted as hosted_channels_of
from quaestor.channels.pages import ResultPages
from quaestor.channels.rewriting.compilation import compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter
from quaestor.channels.runs.queries import Queries, shapes
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner, create_tables, drop_tables
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.service import ChannelParts, ChannelService
from quaestor.channels.subscriptions import Subscriptions
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.functions import DeclaredQueries
from quaestor.continuous.service import ContinuousService, ServiceParts
from quaestor.live.results.endpoint import channel_results
from quaestor.middleware import BrowserClient, QuaestorMiddleware
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables import (
    Catalogue,
    Column,
    FollowedCollection,
    ObjectStorage,
    Schema,
    SchemaError,
    Type,
    VersionedTable,
    maintain,
    versions,
)
from quaestor.testing import (
    VirtualClock,
    assert_cached,
    assert_cached_async,
    assert_invalidated_by,
    assert_invalidated_by_async,
    assert_not_cached,
    assert_not_cached_async,
    mongo_url,
    redis_url,
)

app = FastAPI()
quaestor = Quaestor(Settings.from_env(redis_url="redis://localhost"))
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(event_listeners=[quaestor.capture])
app.add_middleware(
    QuaestorMiddleware,
    quaestor=quaestor,
    routes={"/feed/*": cached(scope=public())},
    browser_client=BrowserClient(
        path="/quaestor", handles=["/feed/"], leaves=["/feed/raw/"], offline=True, inject=True
    ),
)


def user_of(scope: Mapping[str, Any]) -> str | None:
    user = scope.get("user")
    return None if user is None else str(user)


@app.get("/items")
@cached(scope=public(), tags=["items"], ttl=300, representation=Representation.IDS)
async def items() -> list[dict[str, Any]]:
    return await client.shop.items.find().to_list()


@app.get("/me")
@cached(
    scope=per_user(by=cookie("session")), live=Live(patch=True, poll=5, valid_until=lambda scope: scope["expires_s"])
)
async def me() -> dict[str, str]:
    uncacheable("reads a file")
    soon = Now() + timedelta(hours=1)
    assert soon > Now().floor(timedelta(minutes=5))
    return {}


@app.get("/secret")
@cached(scope=private())
async def secret() -> None: ...


router = APIRouter(dependencies=[Depends(cache_policy(scope=per_role(by=header("x-role"))))])


async def principal(request: Request) -> Principal:
    return Principal(user=user_of(request.scope))


access = Access(collections={"items": CollectionAccess(read=Rule.of(["*"]))})


async def grant(request: Request) -> Grant:
    return Grant(principal=await principal(request), expires_at_ms=None)


app.include_router(ChannelResults(quaestor, path="/news", scope=public()))
app.include_router(ChannelFeeds(quaestor, path="/in", dependencies=[Depends(principal)]))
app.include_router(ContinuousResults(quaestor, path="/results", scope=public(), dependencies=[Depends(principal)]))
live_queries = LiveQueries(
    client.shop, quaestor=quaestor, path="/live", access=access, principal=grant, origins=["https://shop.example"],
    limits=SocketLimits(subscriptions=10),
)  # fmt: skip
app.include_router(live_queries)
app.include_router(QuaestorRouter(client.shop, access=access, principal=principal, limits=Limits(), quaestor=quaestor))
app.include_router(router)


def may(action: Action) -> bool:
    return access.permits("items", action, Principal())


def estimated(estimator: LifetimeEstimator) -> Quaestor:
    other = Quaestor(estimator=estimator)
    other.on_read(read)
    other.on_invalidated(invalidated)
    other.on_failure(failed)
    return other


def read(read_answer: ReadAnswered) -> None:
    print(read_answer.outcome, read_answer.detail, read_answer.seconds)


def invalidated(done: InvalidationDone) -> None:
    print(done.keys, done.evicted_at_ms - done.written_at_ms)


def failed(seen: FailureSeen) -> None:
    print(seen.part, seen.name)


def around() -> AdminApi:
    return AdminApi(app, quaestor=quaestor, token=AdminToken.load(Path("/run/secrets/quaestor")))


def watched(token: AdminToken, viewers: AdminToken) -> QuaestorMiddleware:
    dashboard = Dashboard(token=token, viewer_token=viewers, read_only=False, path="/quaestor/dashboard")
    return QuaestorMiddleware(app, quaestor=quaestor, dashboard=dashboard)


def observe(event: PurgeEvent) -> None:
    if event.outcome is Outcome.ABANDONED:
        print(event.place, event.targets, event.error)


def cdn() -> str:
    limits = BatchLimits(max_targets=50, pause_ms=100)
    varnish: CdnAdapter = VarnishAdapter(["http://localhost:6081"], limits=limits, observe=observe)
    place: Place = MemoryCdn()
    quaestor.add_cdn(FanOut("edge", [varnish, Delivery(place, limits=limits)]))
    edge = VarnishAdapter(["http://localhost:6082"], limits=limits)
    quaestor.add_cdn(Tiers("varnish", shield=VarnishAdapter("http://localhost:6081"), edge=edge))
    return varnish_vcl("localhost", 8000, fills_caches=True)


def hosted(token: str) -> Sequence[Place]:
    return (
        Fastly("service", token=token, soft=True),
        Cloudflare("0" * 32, token=token, plan="business"),
        CloudFront("distribution", tags=True),
        Akamai("host", client_token="client", client_secret=token, access_token=token),
        Bunny(1, key=token),
        KeyCdn(1, key=token),
        GoogleCloudCdn("project", "map"),
        AzureFrontDoor(
            subscription="s",
            resource_group="g",
            profile="p",
            endpoint="e",
            tenant="t",
            client_id="c",
            client_secret=token,
        ),
        Vercel("project", token=token),
        Netlify("site", token=token),
        Webhook("https://purger.example/purge", key=token),
        Nginx("http://localhost:8080", token=token),
        Squid("http://localhost:3128", token=token),
        Souin("http://localhost:8080", token=token),
        TrafficServer("http://localhost:8080", token=token),
    )


def configurations() -> str:
    return "".join(provider_configuration(name) for name in (*CACHES, *HOSTED))


def capabilities() -> Capabilities:
    rate = Rate(bucket="edge/account/1", owner=Owner.ACCOUNT, per_s=5, burst=25, unit=Unit.REQUEST)
    return Capabilities(
        kinds=("tag", "url"),
        tag_field=TagField(name="cache-tag", separator=","),
        lifetime_field=LifetimeField(name="edge-control", form="max-age={lives_s}"),
        rates=(rate,),
        cost=Cost(free_a_month=1_000, usd_a_target=0.005),
        asynchronous=True,
        open_targets=3_000,
        url_ignores_query=True,
        url_ignores_case=True,
    )


def price(capabilities: Capabilities, targets: int) -> float:
    cost, owners = capabilities.cost, {rate.owner for rate in capabilities.rates}
    if cost is None or owners <= {Owner.PLACE, Owner.ZONE}:
        return 0.0
    return max(0, targets - cost.free_a_month) * cost.usd_a_target


async def answered(connection: Connection, targets: Sequence[Target]) -> str:
    answer: Answer = await connection.send(targets)
    match answer:
        case Delivered():
            return "done"
        case Accepted():
            return answer.ticket
        case Rejected():
            return answer.reason
        case Throttled():
            pace: Pace | None = answer.pace
            return str(pace)


async def purged_in_a_test() -> list[Target]:
    cdn = MemoryCdn()
    adapter = MemoryAdapter(cdn)
    cdn.store("https://shop.example/items", adapter.response_headers(["items"]))
    await adapter.purge(tags=["items"], urls=[])
    await adapter.aclose()
    assert "https://shop.example/items" not in cdn
    return cdn.purged


async def follow() -> Sequence[Any]:
    rows: list[Any] = []
    query = Query(namespace="shop.items", operation=Operation.FIND, filter={"tag": "tea"}, limit=10)
    live: LiveResult
    async with await quaestor.subscribe(query, delivery=DeliveryMode.EXACT) as live:
        async for event in live:
            match event:
                case Whole():
                    rows = list(event.rows)
                case ResultEvent():
                    rows = replay(rows, [event])
                case Stalled() | Resumed():
                    print(event.since_ms)
                case DeliveryChanged():
                    print(event.delivery, event.lacking)
                case Resynchronized():
                    print(event.events)
                case Step():
                    print(event.epoch, event.sequence, event.version)
    return rows


async def followed_elsewhere() -> list[Any]:
    async with LiveClient("wss://shop.example/live", token="secret") as live:
        await live.cut()
        await live.renew("another")
        results = await live.result_stream("items", {"tag": "tea"}, sort=[("price", 1)], limit=10)
        async for item in await live.event_stream("items", initial=False):
            match item:
                case LiveEvent():
                    print(item.match_type, item.operation, item.document, item.before, item.index, item.previous_index)
                case LiveGap():
                    print(item.reason, item.documents)
        print(results.stale_since)
        return results.latest() or []


async def followed_over_http() -> list[Any]:
    async with HttpLiveQuery(
        "https://shop.example/live", "items", {"tag": "tea"}, sort=[("price", 1)], limit=10
    ) as results:
        async for rows in results:
            print(rows)
        return results.latest() or []


def followed_in_a_thread() -> None:
    with SyncLiveClient("wss://shop.example/live") as live, live.result_stream("items") as results:
        for rows in results:
            print(rows, results)
        for item in live.event_stream("items"):
            print(item)


async def roles_changed() -> None:
    await live_queries.recheck()


async def invalidate() -> None:
    try:
        await quaestor.invalidate(tags=["items"], urls=["/items"], collections=["shop.items"])
    except (ConfigurationError, MalformedQueryError, UnsupportedQueryError, QueryError) as error:
        print(error)
    except (StoreError, SketchError, EventLayerError, DatabaseError, CdnError, SubscriptionError) as error:
        print(error.retryable, error.retry_after_s)
    except (DependencyError, QuaestorError) as error:
        print(error)


async def read_from_copies() -> list[str]:
    transport = QuaestorTransport("https://shop.example", level=Level(delta_s=5, causal=True))
    async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as shop:
        await transport.refresh()
        listed = await shop.get("/db/items?representation=ids", extensions={"quaestor": {"strong": True}})
        members = await resolve(shop, listed.json(), lambda identifier: f"/db/items/{identifier}")
        transport.forget_private()
    print(transport.counts.memory, transport.counts.validated, listed.extensions["quaestor"])
    return [member.text for member in members]


def read_in_threads() -> list[str]:
    transport = QuaestorSyncTransport("https://shop.example", memory_bytes=1_000_000)
    with httpx.Client(transport=transport) as shop:
        transport.refresh()
        members = resolve_sync(shop, [1, 2], lambda identifier: f"https://shop.example/db/items/{identifier}")
        transport.forget_private()
    return [member.text for member in members]


def history() -> list[Write]:
    return list(writes(Path("/var/lib/quaestor"), namespace="shop.items"))


def tested(client: httpx.Client) -> None:
    """Use the assertions that tests of an application import."""
    quaestor.settled_sync(within_s=5.0)
    assert assert_cached(client, "/items", within_s=2.0).status_code == 200
    assert_not_cached(client, "/orders", headers={"cache-control": "no-cache"})
    assert assert_invalidated_by(lambda: None, client, "/items", within_s=2.0).status_code == 200


async def tested_asynchronously(client: httpx.AsyncClient) -> None:
    """The same with an event loop."""
    clock = VirtualClock()
    clock.advance(timedelta(hours=1))
    _ = Quaestor(clock=clock), clock.now()
    await quaestor.settled()
    await assert_invalidated_by_async(quaestor.settled, client, "/items")
    answer: httpx.Response = await assert_cached_async(client, "/items")
    await assert_not_cached_async(client, str(answer.url))


def tables() -> Any:
    """Rows with the instants of their publication."""
    catalogue = Catalogue(Path("/var/lib/quaestor/tables"))
    schema = Schema((Column("id", Type.BIGINT),), key=("id",))
    orders = catalogue.create("orders", schema)
    before = orders.append([{"id": 1}], progress={"late": 1}, notes={"source": None}, additions=schema, steps=[0])
    print(catalogue.names(), catalogue.schemas(), orders.snapshot().progress)
    rows = catalogue.open("orders").scan(orders.snapshot(), before, orders.close(), ["id"])
    catalogue.drop("orders")
    return rows


async def continuous(parts: ServiceParts) -> None:
    """Installed queries, run by a service on an engine of the application's own."""

    async def remind(batch: ResultBatch) -> None:
        print(batch.rows)

    declared = DeclaredQueries()
    declared.add("SELECT id FROM orders", every="1m", name="remind", at_most="", function=remind)
    declared.install(parts.installed, now=0)
    parts.installed.resume(parts.installed.pause("remind").name)
    print(declared.sink_of("function:remind"), bool(declared))
    service = ContinuousService(parts)
    await service.run_due()
    print([(query.due, query.errors, query.quarantined) for query in service.schedule.entries()])
    await service.keep_running()
    parts.installed.drop("remind")


def filled(shop: Database[dict[str, Any]], store: Any) -> Any:
    """A collection as a table in an object store."""
    catalogue = Catalogue(ObjectStorage(store, "tables"))
    try:
        FollowedCollection(shop.orders, catalogue, "orders").run(threading.Event())
    except SchemaError as error:
        print(error.column)
    orders: VersionedTable = catalogue.open("orders")
    print(maintain(orders.table, file_bytes=1 << 27, keep_days=0, grace_s=3_600, now_ms=0).made)
    snapshot = orders.snapshot()
    return versions(orders, snapshot, snapshot.instant)


def datasets(catalogue: Catalogue, schema: Schema) -> list[str]:
    officers = Dataset.create(catalogue, "officers", schema, active=True, partitions=2)
    officers.upsert([{"oid": 1}], feed=Position("locations", 1, "0-1"))
    officers.merge([{"oid": 1, "location": [0, 0]}])
    return dataset_names(catalogue)


def channels(catalogue: Catalogue, body: str, officer: int) -> object:
    definition = ChannelDefinition(name="near", body=body, parameters=(Parameter("oid"),))
    compiled = compile_channel(definition, shapes(catalogue))
    create_tables(catalogue, compiled)
    subscriptions = Subscriptions(catalogue, "near", compiled.parameters)
    mine = subscriptions.add("broker", [officer], user="me")
    subscriptions.change(mine, broker="other")
    subscriptions.pause(mine)
    subscriptions.resume(mine)
    subscriptions.remove(mine)
    outcome = Runner(catalogue, DuckDbExecutor()).run(compiled, 0)
    print(outcome.current, outcome.previous, outcome.reasons, outcome.seconds, compiled.explanation(outcome.sizes))
    print(Queries(catalogue, DuckDbExecutor()).rows(body), definition.period, definition.push, definition.start)
    Results(catalogue, "near").retain(after=outcome.run)
    pages: ResultPages = StoredPages(catalogue)
    for page in (*pages.after("near", "broker", 0, 100), *pages.of_subscription("near", mine, 0, 100)):
        print(page.run, [(row.number, row.record, row.subscriptions) for row in page.rows])
    print(pages.newest("near"), pages.oldest("near"))
    drop_tables(catalogue, "near")
    return outcome


async def brokers(catalogue: Catalogue, pages: ResultPages, telemetry: Telemetry, networks: Networks) -> Starlette:
    registry = Brokers(catalogue.root, networks=networks)
    broker = registry.register("b", "https://broker.example/", options={"lease": "PT1H"}, owner="me", replaces=True)
    print(broker.accepts_subscriptions, broker.described(), registry.resume("b"), registry.drain("b"))
    acknowledgements = Acknowledgements(catalogue.root)
    delivery = BrokerDelivery(
        DeliveryParts(
            brokers=registry,
            pages=pages,
            acknowledgements=acknowledgements,
            courier=Courier(DeadLetters(catalogue.root.below("_broker_letters")), telemetry),
            telemetry=telemetry,
            networks=networks,
        )
    )
    await delivery.deliver("near", push=True)
    await delivery.replay("near")
    print(acknowledgements.upto("b", "near"), decoded(b"{}"))
    registry.drop("b")
    acknowledgements.forget("b")
    return Starlette(routes=channel_results(ServedResults(pages, registry, acknowledgements)))


async def feeds(catalogue: Catalogue, telemetry: Telemetry) -> Starlette:
    registry = Feeds(catalogue.root)
    registry.create("f", {"type": "http"}, owner="me", replaces=True)
    registry.connect("f", "officers", mode="upsert", function="shop.feeds:enriched")
    print(registry.start("f").described(), registry.stop("f"))
    service = FeedService(FeedParts(catalogue=catalogue, feeds=registry, telemetry=telemetry, folder=Path("sources")))
    await service.keep_running()
    print(service.replay("f").accepted)
    registry.drop("f")
    return Starlette(routes=service.routes())


async def hosted_channels(catalogue: Catalogue, telemetry: Telemetry) -> None:
    parts = ChannelParts(
        catalogue=catalogue, channels=list, executor_of=executors_of(ContinuousSettings()), telemetry=telemetry
    )
    print(ChannelService(parts).status())
    await hosted_channels_of(Path("tables"), parts)


USES = (
    *(may, estimated, around, cdn, capabilities, price, answered, purged_in_a_test, hosted, configurations),
    *(
        follow,
        roles_changed,
        followed_elsewhere,
        followed_over_http,
        followed_in_a_thread,
        invalidate,
        history,
        tables,
        continuous,
        brokers,
        feeds,
        channels,
        hosted_channels,
        datasets,
        filled,
        read_from_copies,
        read_in_threads,
        tested,
        tested_asynchronously,
    ),
)


def servers() -> tuple[str, str]:
    """URLs of servers that run while the block does."""
    with mongo_url(journal_ms=10) as mongo, redis_url() as shared:
        return mongo, shared
