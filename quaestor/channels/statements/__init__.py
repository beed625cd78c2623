"""Statements of channels, feeds and datasets: text is read into frozen values, and printed back."""
