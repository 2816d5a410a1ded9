"""AMQP method declarations for connections, channels and access: classes 10, 20 and 30."""

from typing import NamedTuple

from holdfast.amqp.method_codec import NO_FIELDS, Bit, Long, LongStr, Octet, Short, ShortStr, Table, wire

__all__ = [
    "AccessRequest",
    "AccessRequestOk",
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
]


@wire(10, 10)
class ConnectionStart(NamedTuple):
    """The server announces its properties and authentication mechanisms."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = NO_FIELDS
    mechanisms: LongStr = b""
    locales: LongStr = b""


@wire(10, 11)
class ConnectionStartOk(NamedTuple):
    """The client chooses a mechanism and authenticates with it."""

    client_properties: Table = NO_FIELDS
    mechanism: ShortStr = ""
    response: LongStr = b""
    locale: ShortStr = ""


@wire(10, 20)
class ConnectionSecure(NamedTuple):
    """The mechanism sends a challenge."""

    challenge: LongStr = b""


@wire(10, 21)
class ConnectionSecureOk(NamedTuple):
    """The client answers a challenge of the mechanism."""

    response: LongStr = b""


@wire(10, 30)
class ConnectionTune(NamedTuple):
    """The limits that the server proposes."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@wire(10, 31)
class ConnectionTuneOk(NamedTuple):
    """The limits that the client accepts, which then apply."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@wire(10, 40)
class ConnectionOpen(NamedTuple):
    """The client asks for a virtual host."""

    virtual_host: ShortStr = "/"
    capabilities: ShortStr = ""
    insist: Bit = False


@wire(10, 41)
class ConnectionOpenOk(NamedTuple):
    """The virtual host is open."""

    known_hosts: ShortStr = ""


@wire(10, 50)
class ConnectionClose(NamedTuple):
    """The sender closes the connection and gives the reason."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@wire(10, 51)
class ConnectionCloseOk(NamedTuple):
    """The receiver confirms the close of the connection."""


@wire(10, 60)
class ConnectionBlocked(NamedTuple):
    """The server accepts no messages for now."""

    reason: ShortStr = ""


@wire(10, 61)
class ConnectionUnblocked(NamedTuple):
    """The server accepts messages again."""


@wire(10, 70)
class ConnectionUpdateSecret(NamedTuple):
    """The client renews its credentials."""

    new_secret: LongStr = b""
    reason: ShortStr = ""


@wire(10, 71)
class ConnectionUpdateSecretOk(NamedTuple):
    """The server accepts the renewed credentials."""


@wire(20, 10)
class ChannelOpen(NamedTuple):
    """The client opens a channel."""

    out_of_band: ShortStr = ""


@wire(20, 11)
class ChannelOpenOk(NamedTuple):
    """The channel is open."""

    channel_id: LongStr = b""


@wire(20, 20)
class ChannelFlow(NamedTuple):
    """The sender asks the peer to pause or resume."""

    active: Bit = False


@wire(20, 21)
class ChannelFlowOk(NamedTuple):
    """The peer confirms the pause or the resumption."""

    active: Bit = False


@wire(20, 40)
class ChannelClose(NamedTuple):
    """The sender closes the channel and gives the reason."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@wire(20, 41)
class ChannelCloseOk(NamedTuple):
    """The receiver confirms the close of the channel."""


@wire(30, 10)
class AccessRequest(NamedTuple):
    """A client of AMQP 0-8 requests a ticket; it gets one that has no meaning."""

    realm: ShortStr = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@wire(30, 11)
class AccessRequestOk(NamedTuple):
    """The ticket."""

    ticket: Short = 1
