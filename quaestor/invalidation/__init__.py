"""The write path: from a change event to the answers that it outdates."""
