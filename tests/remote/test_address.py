"""Does a URL say where the server is, and who asks?"""

import pytest

from holdfast import InvalidArgument
from holdfast.remote import Address


def test_guest_asks_where_nobody_is_named() -> None:
    address = Address.parse("http://localhost:15672")
    assert (address.host, address.port, address.user, address.password) == ("localhost", 15672, "guest", "guest")
    assert (address.vhost, address.path, address.token) == ("/", "", None)


def test_names_and_passwords_are_percent_decoded() -> None:
    address = Address.parse("https://an%40n:p%3A%2Fw%C3%BC@host/proxy/?vhost=a%2Fb%20c")
    assert (address.user, address.password, address.vhost) == ("an@n", "p:/wü", "a/b c")
    assert (address.port, address.path, address.is_secure) == (443, "/proxy", True)


def test_a_user_without_a_password_is_not_given_that_of_guest() -> None:
    assert Address.parse("http://ann@host").password == ""
    assert Address.parse("http://host", user="ann").password == ""


def test_what_is_given_besides_goes_before_the_url() -> None:
    address = Address.parse("http://ann:a@host?vhost=x", user="bob", password="b", vhost="y")
    assert (address.user, address.password, address.vhost) == ("bob", "b", "y")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:15672", "ftp://host", "amqp://host:5672", "http://", "http://host:port", "http://ho st", "http://h#x",
     "http://host:99999", "http://[::1", "data"],
)  # fmt: skip
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the URL of a server"):
        Address.parse(url)


def test_a_password_is_shown_nowhere() -> None:
    address = Address.parse("http://ann:s3cret@host:1/x?vhost=v", token="hf_t0ken")
    assert "s3cret" not in repr(address) and "t0ken" not in repr(address)
    assert str(address) == "http://host:1/x/?vhost=v"
    with pytest.raises(InvalidArgument) as caught:
        Address.parse("http//ann:s3cret@host")
    assert "s3cret" not in str(caught.value)


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    assert Address.parse("http://[::1]:15672").host == "::1"
    assert str(Address.parse("http://[::1]:15672")) == "http://[::1]:15672"
    assert str(Address.parse("http://host:80/")) == "http://host"


def test_what_is_no_token_is_not_sent() -> None:
    for token in ("", "two words", "line\nbreak", "ü"):
        with pytest.raises(InvalidArgument, match="is not a token"):
            Address.parse("http://host", token=token)


def test_a_query_has_the_virtual_host_and_nothing_else() -> None:
    with pytest.raises(InvalidArgument, match="unknown parameter"):
        Address.parse("http://host?queue=x")
