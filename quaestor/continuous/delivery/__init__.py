"""Delivery of results to webhooks, mailboxes and files: at least once, with idempotency keys."""
