-- standard
SELECT
  m.id AS id,
  r.id AS reply
FROM msgs AS m
CROSS JOIN msgs AS r
WHERE
  r.inreplyto = m.id AND m.ts <= $t AND r.ts <= $t
UNION
SELECT
  m.id AS id,
  CAST(NULL AS TEXT) AS reply
FROM msgs AS m
WHERE
  m.ts <= $t
  AND NOT EXISTS(
    SELECT
      1
    FROM msgs AS r
    WHERE
      r.inreplyto = m.id AND r.ts <= $t
  )

-- monotone
SELECT
  m.id AS id,
  r.id AS reply
FROM msgs AS m
CROSS JOIN msgs AS r
WHERE
  r.inreplyto = m.id AND m.ts <= $t AND r.ts <= $t
UNION
SELECT
  m.id AS id,
  CAST(NULL AS TEXT) AS reply
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS r
    WHERE
      r.inreplyto = m.id AND r.ts <= m.ts
  )
  AND m.ts <= $t

-- incremental
SELECT
  m.id AS id,
  r.id AS reply
FROM msgs AS m
CROSS JOIN msgs AS r
WHERE
  r.inreplyto = m.id AND $tau < r.ts AND r.ts <= $t AND m.ts <= $t
UNION
SELECT
  m.id AS id,
  r.id AS reply
FROM msgs AS m
CROSS JOIN msgs AS r
WHERE
  r.inreplyto = m.id AND $tau < m.ts AND m.ts <= $t AND r.ts <= $tau
UNION
SELECT
  m.id AS id,
  CAST(NULL AS TEXT) AS reply
FROM msgs AS m
WHERE
  NOT EXISTS(
    SELECT
      1
    FROM msgs AS r
    WHERE
      r.inreplyto = m.id AND r.ts <= m.ts
  )
  AND m.ts <= $t
  AND $tau < m.ts

-- The result is every row that the query returned at any instant, each row once.
-- A row is returned at its publication, before any row could match its NOT EXISTS. Add a bound such as `ts + INTERVAL 14 DAY < now()` if the absence must last.
-- Several combinations of rows can give the same result at different instants, so delivered rows are remembered without end.
