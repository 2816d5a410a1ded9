"""Check of connection.tune-ok: the client must not exceed the limits that the server offered."""

from holdfast.amqp.frames import FRAME_MIN, FrameError
from holdfast.amqp.methods import ConnectionTuneOk
from holdfast.amqp.settings import Settings

__all__ = ["check_tuning"]


def check_tuning(method: ConnectionTuneOk, settings: Settings) -> None:
    """Raise 530 if the client exceeds the offered limits, or its frames are too small to hold anything."""
    if method.frame_max and method.frame_max < FRAME_MIN:
        raise FrameError(530, f"NOT_ALLOWED - negotiated frame_max = {method.frame_max} is lower than {FRAME_MIN}")
    if settings.frame_max and (method.frame_max > settings.frame_max or method.frame_max == 0):
        raise FrameError(
            530,
            f"NOT_ALLOWED - negotiated frame_max = {method.frame_max} is higher than the maximum allowed "
            f"value ({settings.frame_max})",
        )
    if settings.channel_max and (method.channel_max > settings.channel_max or method.channel_max == 0):
        raise FrameError(
            530,
            f"NOT_ALLOWED - negotiated channel_max = {method.channel_max} is higher than the maximum "
            f"allowed value ({settings.channel_max})",
        )
