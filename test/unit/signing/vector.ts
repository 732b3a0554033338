// The published vector: what anybody's implementation can be checked against.

export const vector = {
  /** 32 bytes counting up from 0. */
  secret: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
  deliveryId: "0b5f7a1e-7c1d-4b53-9a53-5d0f0d2b6c11",
  timestamp: 1789128260,
  body: '{"version":"taisce-notification/v1","scope":"p1","formed_through":412,"stored_through":418,"parked_turns":0,"occurred_at":"2026-09-11T09:44:20Z"}',
  signature: "9ac42aad3b58cb4d121c5f0a34d6f45df0dc99e36e5c74ba2bb7573cbf014e04",
  header: "v1 t=1789128260 s=9ac42aad3b58cb4d121c5f0a34d6f45df0dc99e36e5c74ba2bb7573cbf014e04",
  standardSignature: "v1,CEN2e7Kj7runOFsRiv64LxR3sv8BLgjoWLjqQKdiFn0=",
} as const;
