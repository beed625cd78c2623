"""The dashboard: its data, its calls, and its page in a real browser."""
