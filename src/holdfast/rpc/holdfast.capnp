# Holdfast's own interface: any queue, for users with permissions. Later additions get new ordinals.

@0x83bedd73918559ee;

using Queueber = import "queueber.capnp";

interface Holdfast extends(Queueber.Queue) {
  # The bootstrap interface of every client. Queueber's methods serve the one queue that is configured for them.

  login @0 (user :Text, password :Text) -> (session :Session);
  enter @1 (token :Text) -> (session :Session);  # a token of the HTTP API
}

interface Session {
  # An authenticated user. It ends with the connection, and with the token that was used to log in.

  whoami @0 () -> (name :Text);
  queue @1 (vhost :Text = "/", queueName :Text) -> (queue :WorkQueue);
}

interface WorkQueue {
  # Ids and leases are Holdfast's own numbers. Times are nanoseconds since 1970, lengths of time are seconds.

  put @0 (messages :List(Message)) -> (ids :List(UInt64));
  # All of them or none; durable when this returns.

  lease @1 (count :UInt32 = 1, seconds :Float64 = 0, wait :Float64 = 0) -> (deliveries :List(Delivery));
  # Leased for `seconds` (0: the queue's lease time). Without messages, wait up to `wait` seconds; below 0: forever.

  ack @2 (held :List(Held)) -> (lost :List(UInt64));
  nack @3 (held :List(Held), reason :Text, delay :Float64 = -1) -> (lost :List(UInt64));
  # Redelivered after `delay` seconds; below 0: after the queue's backoff.

  extend @4 (held :List(Held), seconds :Float64 = 0) -> (lost :List(UInt64));
  release @5 (held :List(Held)) -> (lost :List(UInt64));
  # In these four, `lost` has the ids whose lease is no longer held.

  peek @6 (count :UInt32 = 10) -> (messages :List(Waiting));
  stats @7 () -> (stats :Stats);
}

struct Header {
  name @0 :Text;
  value :union {
    text @1 :Text;
    data @2 :Data;
  }
}

struct Message {
  payload @0 :Data;
  key :union {
    none @1 :Void;
    some @2 :Data;
  }
  headers @3 :List(Header);
  delay @4 :Float64;
  priority @5 :UInt8;
  ttl @6 :Float64;  # 0 is none
  dedup @7 :Data;  # empty is none
}

struct Waiting {
  id @0 :UInt64;
  payload @1 :Data;
  key :union {
    none @2 :Void;
    some @3 :Data;
  }
  headers @4 :List(Header);
  attempts @5 :UInt32;  # failed attempts
  enqueuedAt @6 :Int64;
  priority @7 :UInt8;
}

struct Delivery {
  id @0 :UInt64;
  lease @1 :UInt64;
  payload @2 :Data;
  key :union {
    none @3 :Void;
    some @4 :Data;
  }
  headers @5 :List(Header);
  attempt @6 :UInt32;  # from 1
  enqueuedAt @7 :Int64;
  priority @8 :UInt8;
}

struct Held {
  id @0 :UInt64;
  lease @1 :UInt64;
}

struct Stats {
  ready @0 :UInt64;
  delayed @1 :UInt64;
  leased @2 :UInt64;
  moving @3 :UInt64;
  dead @4 :UInt64;
  leases @5 :UInt64;
  oldestAge @6 :Float64 = -1;  # below 0: no message waits
  putRate @7 :Float64;
  leaseRate @8 :Float64;
  ackRate @9 :Float64;
  totalLeased @10 :UInt64;
  totalAcked @11 :UInt64;
  totalNacked @12 :UInt64;
  totalExpired @13 :UInt64;
  totalDead @14 :UInt64;
  totalDropped @15 :UInt64;
  lag @16 :UInt64;
}
