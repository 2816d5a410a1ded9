"""Which methods open, tune and close connections and channels? Classes 10, 20 and 30 of AMQP."""

from typing import NamedTuple

from holdfast.amqp.layout import NO_FIELDS, Bit, Long, LongStr, Octet, Short, ShortStr, Table, wire

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
    """The server names its properties and how one may log in."""

    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Table = NO_FIELDS
    mechanisms: LongStr = b""
    locales: LongStr = b""


@wire(10, 11)
class ConnectionStartOk(NamedTuple):
    """The client chooses a mechanism and logs in with it."""

    client_properties: Table = NO_FIELDS
    mechanism: ShortStr = ""
    response: LongStr = b""
    locale: ShortStr = ""


@wire(10, 20)
class ConnectionSecure(NamedTuple):
    """The mechanism has one more question."""

    challenge: LongStr = b""


@wire(10, 21)
class ConnectionSecureOk(NamedTuple):
    """The answer to a question of the mechanism."""

    response: LongStr = b""


@wire(10, 30)
class ConnectionTune(NamedTuple):
    """The limits that the server proposes."""

    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@wire(10, 31)
class ConnectionTuneOk(NamedTuple):
    """The limits that hold."""

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
    """The sender ends the connection, and says why."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@wire(10, 51)
class ConnectionCloseOk(NamedTuple):
    """The end of the connection is accepted."""


@wire(10, 60)
class ConnectionBlocked(NamedTuple):
    """The server takes no messages for now."""

    reason: ShortStr = ""


@wire(10, 61)
class ConnectionUnblocked(NamedTuple):
    """The server takes messages again."""


@wire(10, 70)
class ConnectionUpdateSecret(NamedTuple):
    """The client renews what it logged in with."""

    new_secret: LongStr = b""
    reason: ShortStr = ""


@wire(10, 71)
class ConnectionUpdateSecretOk(NamedTuple):
    """The renewed secret holds."""


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
    """The sender asks the other side to pause or to go on."""

    active: Bit = False


@wire(20, 21)
class ChannelFlowOk(NamedTuple):
    """The pause or its end is accepted."""

    active: Bit = False


@wire(20, 40)
class ChannelClose(NamedTuple):
    """The sender ends the channel, and says why."""

    reply_code: Short = 200
    reply_text: ShortStr = ""
    class_id: Short = 0
    method_id: Short = 0


@wire(20, 41)
class ChannelCloseOk(NamedTuple):
    """The end of the channel is accepted."""


@wire(30, 10)
class AccessRequest(NamedTuple):
    """A client of AMQP 0-8 asks for a ticket; it gets one that means nothing."""

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
