"""Ingest: the change stream of MongoDB as after-images in the write pipelines."""
