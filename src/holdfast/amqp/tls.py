"""TLS context from the files that the settings name, checked before a listener opens."""

import ssl

from holdfast.amqp.settings import Settings
from holdfast.base.errors import InvalidArgument

__all__ = ["check_tls", "tls_context"]

_FILES = ("tls_certificate", "tls_key", "tls_ca")


def check_tls(settings: Settings) -> None:
    """Reject unusable certificate files, if any listener uses TLS."""
    if settings.amqps_port is not None or settings.https_port is not None:
        tls_context(settings)


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Return the server's TLS context, made from the files that the settings name."""
    if settings.tls_certificate is None:
        raise InvalidArgument(
            "TLS needs a certificate: set tls_certificate and tls_key, or leave amqps_port and https_port out"
        )
    for name in _FILES:
        path = getattr(settings, name)
        try:
            if path is not None:
                open(path, "rb").close()  # noqa: PTH123 - as the ssl library does, whose error does not name the file
        except OSError as error:
            raise InvalidArgument(
                f"{name} {path!r} cannot be read: {error.strerror}. Relative paths start at the working directory"
            ) from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    used = f"tls_certificate {settings.tls_certificate!r} with tls_key {settings.tls_key or settings.tls_certificate!r}"
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        if settings.tls_ca is not None:
            used = f"tls_ca {settings.tls_ca!r}"
            context.load_verify_locations(settings.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED if settings.tls_verify else ssl.CERT_OPTIONAL
        elif settings.tls_verify:
            raise InvalidArgument("tls_verify needs tls_ca: the file of the CA that signed the clients' certificates")
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(
            f"{used} cannot be used: {error}. The files must be PEM, and certificate and key must match"
        ) from error
    return context
