"""The models of servos that an arm on a serial bus may have."""

from collections.abc import Mapping

ENCODER_TICKS = 4096  # a turn of every model's encoder, which counts no further

_STEP = 1.0  # Feetech count speed in steps/s
_TURN = 0.229 * ENCODER_TICKS / 60  # Dynamixel X count it in 0.229 turns/min, positions in 4096 steps a turn

# How many steps/s one count of a model's measured speed is. Sources: the control tables of Feetech's STS series and of
# Robotis' X series ("Present Velocity").
SERVO_SPEEDS: Mapping[str, float] = {
    "sts3215": _STEP,
    "sts3250": _STEP,
    "xl330-m077": _TURN,
    "xl330-m288": _TURN,
    "xc330-t181": _TURN,
    "xc330-t288": _TURN,
    "xl430-w250": _TURN,
    "xc430-w150": _TURN,
    "xm430-w350": _TURN,
    "xm540-w270": _TURN,
    "xh540-w150": _TURN,
}
