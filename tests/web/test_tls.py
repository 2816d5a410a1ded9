"""The web over TLS, with and without client certificates."""

import ssl
from pathlib import Path

import pytest

import holdfast
from holdfast.remote import Unreachable
from tests.interop.certificates import Authority
from tests.web.serving import Served


@pytest.mark.parametrize("verify", [False, True])
def test_the_api_is_reached_over_tls(tmp_path: Path, verify: bool) -> None:
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    server = authority.for_server()
    files = {"tls_certificate": str(server.chain), "tls_key": str(server.key), "tls_ca": str(authority.file)}
    with Served(tmp_path / "data", https_port=0, tls_verify=verify, **files) as served:
        port = next(port for _, port, tls in served.web.addresses if tls)
        with_one = authority.context(authority.for_client("guest"))
        with holdfast.connect(f"https://localhost:{port}", context=with_one) as remote:
            assert remote.queue("orders").put(b"x") == 0
        with holdfast.connect(f"https://localhost:{port}", context=authority.context()) as remote:
            if verify:
                with pytest.raises((Unreachable, ssl.SSLError)):
                    remote.queues()
            else:
                assert remote.queues() == ["orders"]
        with holdfast.connect(f"https://localhost:{port}") as stranger, pytest.raises(Unreachable):
            stranger.queues()  # which does not know who signed the server's certificate
