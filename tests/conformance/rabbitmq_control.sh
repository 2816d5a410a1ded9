#!/bin/sh
# What tests/conformance asks of a RabbitMQ on this machine: HOLDFAST_TEST_AMQP_CONTROL=tests/conformance/rabbitmq_control.sh
# RABBITMQCTL may name the command, with its options, by which rabbitmqctl is called.
set -eu
ctl=${RABBITMQCTL:-rabbitmqctl -q}
case "$1" in
    block) $ctl set_vm_memory_high_watermark 0 ;;
    unblock) $ctl set_vm_memory_high_watermark 0.4 ;;
    stop) $ctl stop_app ;;
    start) $ctl start_app ;;
    *) echo "block, unblock, stop or start, not $1" >&2; exit 2 ;;
esac
