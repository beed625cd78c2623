"""Every hosted provider: its contract, a place that talks to it, and how the contract is made to refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quaestor.cdn_adapters.akamai import Akamai
from quaestor.cdn_adapters.azure_front_door import AzureFrontDoor
from quaestor.cdn_adapters.bunny import Bunny
from quaestor.cdn_adapters.cloudflare import Cloudflare
from quaestor.cdn_adapters.cloudfront import CloudFront
from quaestor.cdn_adapters.fastly import Fastly
from quaestor.cdn_adapters.google_cloud_cdn import GoogleCloudCdn
from quaestor.cdn_adapters.hosted import HostedPlace
from quaestor.cdn_adapters.keycdn import KeyCdn
from quaestor.cdn_adapters.netlify import Netlify
from quaestor.cdn_adapters.vercel import Vercel
from quaestor.cdn_adapters.webhook import Webhook
from tests.cdn_contracts import (
    akamai,
    azure_front_door,
    bunny,
    cloudflare,
    cloudfront,
    fastly,
    google_cloud_cdn,
    keycdn,
    netlify,
    vercel,
    webhook,
)
from tests.cdn_contracts.serving import Served


@dataclass(frozen=True, slots=True)
class Provider:
    """A hosted provider under test.

    contract: makes one.
    place: makes one that talks to the contract at this address.
    revoke: makes the contract refuse the place's credentials.
    exhaust: makes it refuse the next request as one too many; None: it has no limit.
    secrets: what may appear nowhere.
    """

    contract: Callable[[], Any]
    place: Callable[[str], HostedPlace]
    revoke: Callable[[Any], None]
    exhaust: Callable[[Any], None] | None
    secrets: tuple[str, ...]


def _set(name: str, value: object) -> Callable[[Any], None]:
    return lambda contract: setattr(contract, name, value)


def _empty(*names: str) -> Callable[[Any], None]:
    def exhaust(contract: Any) -> None:
        for name in names:
            getattr(contract, name).tokens = 0

    return exhaust


def _forget_tokens(contract: Any) -> None:
    contract.tokens.clear()
    contract.trusted = False
    contract.client_secret = "another"


def cloudfront_place(url: str, **more: Any) -> CloudFront:
    return CloudFront(
        cloudfront.DISTRIBUTION, access_key=cloudfront.ACCESS_KEY, secret_key=cloudfront.SECRET_KEY,
        session_token=cloudfront.SESSION_TOKEN, base_url=url, **({"tags": True} | more),
    )  # fmt: skip


def akamai_place(url: str, **more: Any) -> Akamai:
    return Akamai(
        "akab-tests.luna.akamaiapis.net", client_token=akamai.CLIENT_TOKEN, client_secret=akamai.CLIENT_SECRET,
        access_token=akamai.ACCESS_TOKEN, base_url=url, **more,
    )  # fmt: skip


def azure_place(url: str, **more: Any) -> AzureFrontDoor:
    at = azure_front_door
    return AzureFrontDoor(
        subscription=at.SUBSCRIPTION, resource_group=at.GROUP, profile=at.PROFILE, endpoint=at.ENDPOINT, tenant=at.TENANT,
        client_id=at.CLIENT_ID, client_secret=at.CLIENT_SECRET, base_url=url, login_url=url, **more,
    )  # fmt: skip


def _exhaust_akamai(contract: Any) -> None:
    contract.requests.tokens = 0


PROVIDERS = {
    "fastly": Provider(
        fastly.FastlyContract, lambda url: Fastly(fastly.SERVICE, token=fastly.TOKEN, base_url=url),
        _set("token", "another"), _empty("bucket"), (fastly.TOKEN,),
    ),
    "cloudflare": Provider(
        cloudflare.CloudflareContract,
        lambda url: Cloudflare(cloudflare.ZONE, token=cloudflare.TOKEN, by_tag=True, base_url=url),
        _set("token", "another"), _empty("bucket", "files"), (cloudflare.TOKEN,),
    ),
    "cloudfront": Provider(
        cloudfront.CloudFrontContract, cloudfront_place, _set("secret_key", "another"), _set("throttle", 1),
        (cloudfront.SECRET_KEY, cloudfront.SESSION_TOKEN),
    ),
    "akamai": Provider(
        akamai.AkamaiContract, akamai_place, _set("client_secret", "another"), _exhaust_akamai,
        (akamai.CLIENT_TOKEN, akamai.CLIENT_SECRET, akamai.ACCESS_TOKEN),
    ),
    "bunny": Provider(
        bunny.BunnyContract, lambda url: Bunny(bunny.ZONE, key=bunny.KEY, base_url=url), _set("key", "another"),
        _empty("exact"), (bunny.KEY,),
    ),
    "keycdn": Provider(
        keycdn.KeyCdnContract, lambda url: KeyCdn(keycdn.ZONE, key=keycdn.KEY, base_url=url), _set("key", "another"),
        _empty("bucket"), (keycdn.KEY,),
    ),
    "google-cloud-cdn": Provider(
        google_cloud_cdn.GoogleContract,
        lambda url: GoogleCloudCdn(
            google_cloud_cdn.PROJECT, google_cloud_cdn.URL_MAP,
            service_account=google_cloud_cdn.service_account(url), base_url=url,
        ),
        _forget_tokens, _empty("bucket"), ("key-id-of-the-tests",),
    ),
    "azure-front-door": Provider(
        azure_front_door.AzureContract, azure_place, _forget_tokens, _empty("bucket"),
        (azure_front_door.CLIENT_SECRET,),
    ),
    "vercel": Provider(
        vercel.VercelContract, lambda url: Vercel(vercel.PROJECT, token=vercel.TOKEN, team=vercel.TEAM, base_url=url),
        _set("token", "another"), _empty("bucket"), (vercel.TOKEN,),
    ),
    "netlify": Provider(
        netlify.NetlifyContract, lambda url: Netlify(netlify.SITE, token=netlify.TOKEN, base_url=url),
        _set("token", "another"), _empty("bucket"), (netlify.TOKEN,),
    ),
    "webhook": Provider(
        webhook.WebhookContract, lambda url: Webhook(url + "/purge", key=webhook.KEY),
        _set("key", "whsec_" + "b" * 32), None, (webhook.KEY,),
    ),
}  # fmt: skip


@dataclass(slots=True)
class World:
    """A provider's contract that is being served, and a place that talks to it."""

    provider: Provider
    contract: Any
    served: Served
    place: HostedPlace
