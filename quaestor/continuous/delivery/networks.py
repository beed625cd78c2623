"""Networks that webhooks may reach: public addresses, and private networks that the operator allows.

A receiver's name is resolved once for each delivery, and the connection goes to the checked address. A name that resolves to
another address a moment later therefore reaches nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from quaestor.continuous.delivery.sink import DeliveryError

_UNICAST: Final = ip_network("2000::/3")
"""Public IPv6 addresses (RFC 4291). Outside lie most addresses that contain an IPv4 address: compatible, translated, NAT64."""
_TUNNELS: Final = (ip_network("2001::/32"), ip_network("2002::/16"))
"""Public networks whose addresses contain an IPv4 address that a gateway may reach: Teredo (RFC 4380), 6to4 (RFC 3056)."""


class Networks:
    """Allowed addresses of receivers.

    private: networks that are allowed although they are not public, like '10.0.0.0/8'.
    """

    def __init__(self, private: Sequence[str] = ()) -> None:
        self._private: tuple[IPv4Network | IPv6Network, ...] = tuple(map(ip_network, private))

    def allows(self, address: str) -> bool:
        """Whether a webhook may connect to this address."""
        parsed = _plain(address)
        if self.is_private(address):
            return True
        if parsed.version == 6 and (parsed not in _UNICAST or any(parsed in tunnel for tunnel in _TUNNELS)):
            return False
        return parsed.is_global and not parsed.is_multicast

    def is_private(self, address: str) -> bool:
        """Whether the address lies in a private network that the operator allows."""
        parsed = _plain(address)
        return any(parsed in network for network in self._private)

    async def address_of(self, host: str, port: int) -> str:
        """Return the first allowed address of a host. Raises DeliveryError if it has no address, or no allowed one."""
        try:
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise DeliveryError(f"{host} has no address: {error}", reason="unreachable") from error
        addresses = [str(entry[4][0]) for entry in resolved]
        for address in addresses:
            if self.allows(address):
                return address
        raise DeliveryError(
            f"{host} is at {', '.join(addresses)}, which is no public address; if webhooks may reach it, add its network "
            "to the setting webhook_networks",
            reason="forbidden-address",
            retryable=False,
        )


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Return the address; an IPv4 address inside an IPv6 address counts as itself."""
    parsed = ip_address(address.partition("%")[0])
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed
