"""Append-only tables of Parquet files, with a log. The statistics job and continuous queries rest on them."""
