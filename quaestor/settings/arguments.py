"""Arguments of `Settings` and `Quaestor`, for type checkers and editors: each group, and each setting by its name."""

from __future__ import annotations

from typing import TypedDict

from quaestor.settings.continuous import ContinuousSettings, TableSettings
from quaestor.settings.groups import (
    CdnSettings,
    GridSettings,
    LifetimeSettings,
    ObservabilitySettings,
    RealtimeSettings,
    SketchSettings,
    StoreSettings,
    VerificationSettings,
)


class SettingsArguments(TypedDict, total=False):
    """Types of the arguments. The tables in `quaestor.settings.groups` describe each."""

    mongo_url: str | None
    redis_url: str | None
    deployment: str
    tenant: str
    enabled: bool
    store: StoreSettings
    sketch: SketchSettings
    lifetimes: LifetimeSettings
    grid: GridSettings | bool
    realtime: RealtimeSettings
    verification: VerificationSettings | bool
    cdn: CdnSettings
    tables: TableSettings
    continuous: ContinuousSettings
    observability: ObservabilitySettings
    memory_bytes: int
    shared_bytes: int
    max_body_bytes: int
    doorkeeper_share: float
    compress_above_bytes: int
    compression_level: int
    partial_answers: bool
    ignored_fields: tuple[str, ...]
    sort_query: bool
    control_namespace: str
    sketch_delta_s: int
    sketch_off: bool
    trust_new_sketch: bool
    sketch_entries: int
    sketch_false_positives: float
    sketch_bytes: int
    sketch_partitions: tuple[str, ...]
    ttl_min_ms: int
    ttl_max_ms: int
    ttl_quantile: float
    client_ttl: str
    early_refresh: float
    clock_window_ms: int
    clock_parts: bool
    explicit: bool
    heuristic_fraction: float
    elect_grid: bool
    staleness_bound_ms: int
    heartbeat_ms: int
    activation_deadline_ms: int
    read_your_writes_ms: int
    journal_flush_ms: int
    recheck: str
    recheck_ms: int
    retention_ms: int
    pipeline_max_entries: int
    pipeline_max_bytes: int
    node_memory_bytes: int
    pre_images: str
    max_contributors: int
    subscription_lease_ms: int
    subscription_extend_ms: int
    subscription_queue: int
    standing_records: int
    poll_interval_ms: int
    propagation_ms: int
    live_followers: int
    live_followers_of_client: int
    live_heartbeat_ms: int
    live_journal_flush_ms: int
    live_interval_ms: int
    live_reconnect_ms: int
    live_send_timeout_ms: int
    live_wait_ms: int
    probation_answers: int
    probation_ttl_ms: int
    verify_share: float
    verify_per_second: float
    quarantine_ms: int
    repurge_after_ms: int
    cdn_addresses: tuple[str, ...]
    cdn_canary_ms: int
    filled_tables: tuple[str, ...]
    table_days: int
    continuous_folder: str
    feed_folder: str
    function_modules: tuple[str, ...]
    channel_days: int
    continuous_executor: str
    continuous_spark_master: str
    continuous_limit_s: int
    webhook_key: str
    webhook_networks: tuple[str, ...]
    mail_server: str
    mail_from: str
    delivery_folder: str
    delivery_timeout_ms: int
    delivery_attempts: int
    debug_header: bool
    tracing: bool
    trace_file: str
    trace_share: float
    trace_max_bytes: int
    freeze_at_start: bool
    switch_interval_ms: float
