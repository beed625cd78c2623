-- standard
SELECT DISTINCT
  i.id AS id
FROM (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM items
) AS i
CROSS JOIN (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM stocks
) AS s
WHERE
  i.price > 100
  AND s.id = i.id
  AND s.count > 0
  AND i.ts <= $t
  AND s.ts <= $t
  AND $t < i._until
  AND $t < s._until

-- monotone
SELECT DISTINCT
  i.id AS id
FROM (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM items
) AS i
CROSS JOIN (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM stocks
) AS s
WHERE
  i.price > 100
  AND s.id = i.id
  AND s.count > 0
  AND i.ts < i._until
  AND i.ts < s._until
  AND s.ts < i._until
  AND s.ts < s._until
  AND i.ts <= $t
  AND s.ts <= $t

-- incremental
SELECT
  i.id AS id
FROM (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM items
) AS i
CROSS JOIN (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM stocks
) AS s
WHERE
  i.price > 100
  AND s.id = i.id
  AND s.count > 0
  AND i.ts < i._until
  AND i.ts < s._until
  AND s.ts < i._until
  AND s.ts < s._until
  AND $tau < s.ts
  AND s.ts <= $t
  AND i.ts <= $t
UNION
SELECT
  i.id AS id
FROM (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM items
) AS i
CROSS JOIN (
  SELECT
    *,
    COALESCE(
      LEAD(ts) OVER (PARTITION BY id ORDER BY ts),
      CAST('9999-12-31 00:00:00' AS TIMESTAMP)
    ) AS _until
  FROM stocks
) AS s
WHERE
  i.price > 100
  AND s.id = i.id
  AND s.count > 0
  AND i.ts < i._until
  AND i.ts < s._until
  AND s.ts < i._until
  AND s.ts < s._until
  AND $tau < i.ts
  AND i.ts <= $t
  AND s.ts <= $tau

-- The result is every row that the query returned at any instant, each row once.
-- A version counts from its publication until the next version of its record.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
