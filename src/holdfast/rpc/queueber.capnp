# Queueber's interface: the names, ordinals and ids that its clients know. Nothing here may change.

@0xbab6e22de0402699;

struct Item {
  contents @0 :Data;
  visibilityTimeoutSecs @1 :UInt64;  # not delivered before this time has passed
}

struct PolledItem {
  contents @0 :Data;
  id @1 :Data;  # 16 bytes
}

struct AddRequest {
  items @0 :List(Item);
}

struct AddResponse {
  ids @0 :List(Data);
}

struct RemoveRequest {
  id @0 :Data;
  lease @1 :Data;
}

struct RemoveResponse {
  removed @0 :Bool;
}

struct PollRequest {
  leaseValiditySecs @0 :UInt64;  # more than 0
  numItems @1 :UInt32;  # 0 is 1
  timeoutSecs @2 :UInt64;  # 0 waits forever
}

struct PollResponse {
  items @0 :List(PolledItem);
  lease @1 :Data;  # 16 bytes, or none if there are no items
}

struct ExtendRequest {
  lease @0 :Data;
  leaseValiditySecs @1 :UInt64;  # from now on
}

struct ExtendResponse {
  extended @0 :Bool;
}

interface Queue {
  add @0 (req :AddRequest) -> (resp :AddResponse);
  remove @1 (req :RemoveRequest) -> (resp :RemoveResponse);
  poll @2 (req :PollRequest) -> (resp :PollResponse);
  extend @3 (req :ExtendRequest) -> (resp :ExtendResponse);
}
