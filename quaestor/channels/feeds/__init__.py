"""Feeds: continuous ingestion from outside sources into datasets."""
