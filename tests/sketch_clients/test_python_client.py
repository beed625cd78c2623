"""The Python client over real HTTP: which reads come from memory, which are sent, and that both twins act alike."""

from __future__ import annotations

import threading

import httpx
import pytest

from quaestor import ConfigurationError, Level, QuaestorSyncTransport, QuaestorTransport, resolve, resolve_sync
from tests.sketch_clients.http_server import Shop
from tests.sketch_clients.shop_client import anyio_backend, client, shop, source, transport, url

pytestmark = pytest.mark.anyio
__all__ = ["anyio_backend", "client", "shop", "transport", "url"]


def test_the_second_read_comes_from_memory(client: httpx.Client, shop: Shop) -> None:
    """Byte for byte and field for field, and the server hears nothing of it."""
    first, second = client.get("/a?x=1"), client.get("/a?x=1")
    assert (source(first), source(second)) == ("server", "memory")
    assert (first.content, first.headers.raw) == (second.content, second.headers.raw)
    assert len(shop.asked) == 1


def test_before_a_sketch_is_there_the_server_is_asked(url: str, shop: Shop) -> None:
    """No request waits for it, and none relies on what it does not know; a server without one changes nothing."""
    shop.sketch_status = 503
    with httpx.Client(transport=QuaestorSyncTransport(url), base_url=url) as client:
        assert [source(client.get("/a")) for _ in range(3)] == ["server", "validated", "validated"]
    assert [condition is not None for _, condition, _ in shop.asked] == [False, True, True]
    assert {said for _, _, said in shop.asked} == {"no-cache"}


def test_a_copy_that_a_newer_sketch_names_is_revalidated(
    client: httpx.Client, transport: QuaestorSyncTransport, shop: Shop
) -> None:
    """A revalidated copy left the server after the sketch was made, so later reads come from memory again."""
    client.get("/a")
    client.get("/b")
    shop.write("/a")
    assert client.get("/a").text == "0 "
    transport.refresh()
    assert (source(client.get("/a")), source(client.get("/b"))) == ("server", "memory")
    assert client.get("/a").text == "1 "


def test_own_writes_are_seen_at_once(client: httpx.Client) -> None:
    client.get("/a")
    client.put("/a")
    answer = client.get("/a")
    assert (source(answer), answer.text) == ("server", "1 ")


def test_levels_of_single_requests(client: httpx.Client, shop: Shop) -> None:
    client.get("/a")
    shop.write("/a")
    assert client.get("/a", extensions={"quaestor": {"delta_s": 30}}).text == "0 "
    assert client.get("/a", extensions={"quaestor": Level(strong=True)}).text == "1 "
    assert shop.asked[-1] == ("/a", None, "no-cache")
    assert source(client.get("/a", extensions={"quaestor": {"delta_s": 0}})) == "validated"


@pytest.mark.parametrize(
    ("said", "complaint"),
    [("strong", "must be a Level"), ({"fresh": True}, "a level has no 'fresh'"), ({"delta_s": -1}, "delta_s must be"),
     ({"delta_s": float("nan")}, "delta_s must be"), ({"causal": 1}, "causal of a level must be True or False")],
)  # fmt: skip
def test_a_level_that_cannot_be_is_refused(client: httpx.Client, said: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        client.get("/a", extensions={"quaestor": said})


@pytest.mark.parametrize(
    "arguments",
    [{"server": "shop"}, {"server": "ftp://shop"}, {"memory_bytes": -1}, {"memory_bytes": "1 MB"}, {"sketch": "sketch"}],
    ids=str,
)  # fmt: skip
def test_an_argument_that_cannot_be_is_refused(arguments: dict[str, object]) -> None:
    for kind in (QuaestorTransport, QuaestorSyncTransport):
        with pytest.raises(ConfigurationError, match="must be"):
            kind(**{"server": "http://shop", **arguments})  # type: ignore[arg-type]


def test_private_answers_are_for_who_asked(client: httpx.Client, transport: QuaestorSyncTransport) -> None:
    """Others never get them, and nobody does after forget_private()."""
    ann, bob = {"authorization": "ann"}, {"authorization": "bob"}
    assert client.get("/me?private", headers=ann).text == "0 ann"
    assert source(client.get("/me?private", headers=ann)) == "memory"
    assert client.get("/me?private", headers=bob).text == "0 bob"
    assert client.get("/me?private").text == "0 "
    client.get("/a")
    transport.forget_private()
    assert source(client.get("/me?private", headers=bob)) == "server"
    assert source(client.get("/a")) == "memory"


def test_variants_are_kept_apart(client: httpx.Client) -> None:
    for language in ("de", "fr", "de"):
        assert client.get("/a?vary", headers={"accept-language": language}).text == f"0 {language}"
    assert source(client.get("/a?vary", headers={"accept-language": "fr"})) == "memory"


@pytest.mark.parametrize(
    "fields",
    [{"range": "bytes=0-1"}, {"if-none-match": '"x"'}, {"cache-control": "no-cache"}, {"host": "other"}],
    ids=str,
)
def test_requests_with_rules_of_their_own_pass(client: httpx.Client, fields: dict[str, str]) -> None:
    client.get("/a")
    assert source(client.get("/a", headers=fields)) is None


def test_answers_without_a_lifetime_pass_as_they_are(client: httpx.Client, shop: Shop) -> None:
    """However often: nothing is kept of them, and nothing is added to their requests."""
    assert [source(client.get("/plain")) for _ in range(3)] == ["passed"] * 3
    assert shop.asked == [("/plain", None, None)] * 3


def test_each_partition_has_its_sketch(client: httpx.Client, transport: QuaestorSyncTransport, shop: Shop) -> None:
    """Until it is there the server is asked."""
    client.get("/a?in=items")
    client.get("/a?in=items")
    transport.refresh()
    client.get("/a?in=items")
    assert source(client.get("/a?in=items")) == "memory"


def test_the_kill_switch_drops_all_copies(client: httpx.Client, transport: QuaestorSyncTransport, shop: Shop) -> None:
    """All that is kept is dropped, requests pass; and it can be taken back."""
    client.get("/a")
    shop.off = True
    transport.refresh()
    assert [source(client.get("/a")) for _ in range(2)] == [None, None]
    shop.off = False
    transport.refresh()
    assert [source(client.get("/a")) for _ in range(2)] == ["server", "memory"]


def test_an_answer_not_read_whole_is_not_kept(client: httpx.Client) -> None:
    with client.stream("GET", "/a"):
        pass
    assert source(client.get("/a")) == "server"


def test_the_oldest_go_when_memory_is_full(url: str) -> None:
    transport = QuaestorSyncTransport(url, memory_bytes=8_000)
    transport.refresh()
    with httpx.Client(transport=transport, base_url=url) as client:
        for number in range(20):
            client.get(f"/{number}")
        assert source(client.get("/19")) == "memory"
        assert source(client.get("/0")) == "server"


def test_several_threads_may_share_one(client: httpx.Client, transport: QuaestorSyncTransport) -> None:
    failed: list[object] = []

    def read() -> None:
        try:
            for number in range(60):
                assert client.get(f"/{number % 5}").text == "0 "
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failed == []
    assert transport.counts.memory > 100


async def test_the_asynchronous_twin_acts_alike(url: str, shop: Shop) -> None:
    """Memory, revalidation, own writes, levels: all as above."""
    transport = QuaestorTransport(url)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        await transport.refresh()
        assert [source(await client.get("/a")) for _ in range(2)] == ["server", "memory"]
        shop.write("/a")
        assert (await client.get("/a", extensions={"quaestor": {"strong": True}})).text == "1 "
        await client.put("/a")
        answer = await client.get("/a")
        assert (source(answer), answer.text) == ("server", "2 ")
        transport.forget_private()
        assert transport.counts.memory == 1


async def test_members_of_an_id_list_come_from_memory(url: str, shop: Shop) -> None:
    """Members come in the list's order, and only changed members are requested."""
    transport = QuaestorTransport(url)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        await transport.refresh()
        await resolve(client, range(30), lambda number: f"/items/{number}")
        shop.write("/items/7")
        await transport.refresh()
        asked_before = len(shop.asked)
        members = await resolve(client, range(30), lambda number: f"/items/{number}", at_once=4)
    assert [member.text for member in members] == ["1 " if number == 7 else "0 " for number in range(30)]
    assert {name for name, *_ in shop.asked[asked_before:]} == {"/items/7"}


def test_members_of_an_id_list_in_threads(client: httpx.Client) -> None:
    assert [answer.text for answer in resolve_sync(client, range(9), lambda number: f"/items/{number}")] == ["0 "] * 9
