"""The former room of subscriptions, which is `quaestor.realtime` now; kept for imports that the documents named."""
