"""The traffic of an exchange: counted from nothing."""

from holdfast.broker.exchange_stats import Traffic


def test_an_exchange_that_nobody_used_has_counted_nothing() -> None:
    traffic = Traffic()
    assert (traffic.came, traffic.went, traffic.dropped, traffic.returned) == (0, 0, 0, 0)
